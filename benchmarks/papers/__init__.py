"""Methods that the product's are compared with: plain functions of a whole stream, no modes."""
