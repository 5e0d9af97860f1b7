#![allow(unused)]
use scoop::prelude::*;

#[scoop::trace]
struct OutOfStock;

#[scoop::trace(all)]
fn f() -> Result<()> {
    Ok(())
}

fn main() {}
