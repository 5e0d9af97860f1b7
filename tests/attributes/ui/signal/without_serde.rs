use scoop::prelude::*;

#[derive(Signal)]
struct Paid;

fn main() {}
