"""Charts as SVG: pure functions from numbers to text, with the standard library alone.

A chart has a title and a description for those who do not see it, and no style of its own: its parts have classes, and
`CSS` gives them colours in light and dark. So a page with a strict Content-Security-Policy can show it.
"""
