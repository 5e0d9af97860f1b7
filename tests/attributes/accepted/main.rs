//! Accepted uses of the attributes: each module compiles without a warning, and its `main` succeeds.
//!
//! A case is a file in this folder, listed in `cases!`. The cases form one ordinary program (`harness = false`), because
//! the compiler skips `missing_docs` in programs for tests. Their modules are public for the same lint.
#![allow(dead_code)]

use std::collections::BTreeSet;
use std::fs;

macro_rules! cases {
    ($($case:ident)*) => {
        $(pub mod $case;)*

        const CASES: &[(&str, fn())] = &[$((stringify!($case), $case::main)),*];
    };
}

cases! {
    default_is_noticed
    derives
    everything_at_once
    failure_codes
    helpers_with_a_scope
    joined_messages
    made_by_a_macro
    names_like_ours
    question_marks
    schedules
    several_messages
    subscribes_above_saga
    the_rest_of_the_language
    type_arguments
}

fn main() {
    let listed: BTreeSet<_> = CASES.iter().map(|(name, _)| format!("{name}.rs")).collect();
    let files =
        fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/accepted")).expect("the folder can be read");
    let files = files.map(|entry| entry.expect("an entry can be read").file_name().into_string());
    let files: BTreeSet<_> =
        files.map(|name| name.expect("a UTF-8 name")).filter(|name| name != "main.rs").collect();
    assert_eq!(listed, files, "every file of this folder is a case");
    for (name, main) in CASES {
        println!("accepted {name}");
        main();
    }
}
