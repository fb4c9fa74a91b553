"""`make release`: from a tag to the files of a release (docs/dev/release.md).

`source` says what is released, `build` makes the files, `bill` the list of what the images contain, `trial` installs
each file once into an empty place.
"""
