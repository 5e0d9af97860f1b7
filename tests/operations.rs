//! Runs the example `operations`, which checks itself.

use std::process::Command;

#[test]
fn operators_see_to_what_failed() {
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap();
    let example = profile.join("examples").join(format!("operations{}", std::env::consts::EXE_SUFFIX));
    assert!(example.exists(), "first run `cargo build --examples`");
    let output = Command::new(example).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(told.contains("3 orders are undone, 1 was paid back, 0 are left"), "{told}");
}
