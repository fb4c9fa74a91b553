"""Charts as SVG: pure functions from numbers to text, using only the standard library.

A chart has a title and a description for screen readers. It has no inline style: its parts have classes, and `CSS`
defines their colours for light and dark mode. So a page with a strict Content-Security-Policy can show it.
"""
