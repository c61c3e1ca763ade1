"""Methods that the product's are compared with: plain functions, no modes."""
