//! The cost of a saga is within its bounds: see `benches/src/guard.rs`.

use std::process::Command;

#[test]
fn saga_costs_no_more_than_its_bounds() {
    let done = Command::new(env!("CARGO_BIN_EXE_scoop-bench")).arg("guard").output().expect("it starts");
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    println!("{said}");
}
