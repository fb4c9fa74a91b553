"""The pages for browsers. They work without scripts, load nothing from elsewhere, and have nothing inline."""
