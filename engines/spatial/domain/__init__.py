"""What spatial events can be: a box, polygons or lines on a map, named zones. All are trees of cells, see `base`."""
