//! Runs each example, which checks itself.

use std::fs;
use std::process::Command;

/// A test for each of these examples, and their names.
macro_rules! examples {
    ($($name:ident)*) => {
        const NAMES: &[&str] = &[$(stringify!($name)),*];

        $(
            #[test]
            fn $name() {
                run(stringify!($name));
            }
        )*
    };
}

examples! {
    approval cancellation child_failures cleanup context control_flow data_between_steps deadlines error_queue failures feed
    find_and_explain idempotency joined_messages limits operations rehearsal replies retries schedule several_topics
    step_limits stuck_runs time undo warehouse
}

/// Runs an example, which `cargo test` has built beside this test.
fn run(name: &str) {
    let test = std::env::current_exe().unwrap();
    let example = test.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(example.exists(), "first run `cargo build -p examples --examples`");
    let ran = Command::new(example).output().unwrap();
    let (output, log) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{}\n{output}\n{log}", ran.status);
}

#[test]
fn each_example_is_run() {
    let files = fs::read_dir(env!("CARGO_MANIFEST_DIR")).unwrap().map(|file| file.unwrap().path());
    let sources = files.filter(|path| path.extension().is_some_and(|it| it == "rs"));
    let mut found: Vec<_> =
        sources.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    found.sort_unstable();
    assert_eq!(found, NAMES);
}
