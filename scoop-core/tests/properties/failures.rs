//! Properties of failures: as JSON, from other programs, and wrapped by ancestors.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use scoop_core::{Escaped, Failure, Frame};
use serde_json::{Value, json};

/// The maximum nesting of failures, below the limits of JSON readers.
const DEPTH_MAX: usize = 40;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn failure_survives_json(failure in failure()) {
        let json = serde_json::to_value(&failure).expect("a failure is JSON");
        let read: Failure = serde_json::from_value(json.clone()).expect("it was a failure");
        prop_assert_eq!(&read, &failure);
        prop_assert!(read.contains(&failure) && failure.contains(failure.root_causes()[0]));
        let text = serde_json::to_string(&failure).expect("a failure is JSON");
        prop_assert_eq!(serde_json::from_str::<Failure>(&text).expect("it was a failure"), failure);
        prop_assert!(every_failure(&json, &has_the_keys_of_the_protocol));
        prop_assert!(!text.contains("\\u0000"));
    }

    /// Other programs add unknown keys, and leave out empty ones.
    #[test]
    fn failure_of_another_program_is_read(failure in failure(), leaves_out in any::<u64>(), adds in any::<bool>()) {
        let mut json = serde_json::to_value(&failure).expect("a failure is JSON");
        let mut nothing = leaves_out;
        written_by_others(&mut json, &mut nothing, adds);
        prop_assert_eq!(serde_json::from_value::<Failure>(json).expect("it is a failure"), failure);
    }

    #[test]
    fn message_is_never_blank_and_texts_have_no_nul(text in r"[\x00 \n\t]{0,4}a?") {
        let failure = Failure::new(&text, &text, &text);
        for text in [&failure.message, &failure.kind, &failure.source] {
            prop_assert!(!text.contains('\0'));
        }
        prop_assert!(!failure.message.trim().is_empty());
        let mut json = serde_json::to_value(&failure).expect("a failure is JSON");
        json["message"] = text.clone().into();
        let read: Failure = serde_json::from_value(json).expect("it is a failure");
        prop_assert_eq!(&read.message, &failure.message);
    }

    /// A failure from any depth can be read, and keeps its root causes.
    #[test]
    fn deep_failure_keeps_its_root_causes(chains in vec(chain(), 1..3)) {
        let ends = |failures: &[Failure]| {
            let ends = failures.iter().flat_map(|failure| failure.root_causes());
            ends.map(|end| end.message.clone()).collect::<Vec<_>>()
        };
        let gave_up = Failure::gave_up("s[w]", chains.clone());
        prop_assert!(depth(&gave_up) <= DEPTH_MAX, "{}", depth(&gave_up));
        prop_assert_eq!(ends(std::slice::from_ref(&gave_up)), ends(&chains));
        let deepest = chains.iter().map(depth).max().unwrap_or(0);
        prop_assert!(deepest >= DEPTH_MAX || depth(&gave_up) == deepest + 1, "a shallow failure keeps its depth");
        let text = serde_json::to_string(&gave_up).expect("a failure is JSON");
        prop_assert_eq!(serde_json::from_str::<Failure>(&text).expect("it can be read"), gave_up);
    }

    #[test]
    fn a_tree_is_walked_with_each_before_its_causes(failure in failure(), more in vec(failure(), 0..3)) {
        let whole = failure.clone().caused_by(more.clone());
        prop_assert_eq!(whole.causes.len(), failure.causes.len() + more.len());
        prop_assert!(more.iter().all(|cause| whole.contains(cause) && whole.causes.contains(cause)));
        let leaf = |failure: &Failure| failure.causes.is_empty();
        prop_assert!(whole.root_causes().into_iter().all(leaf));
        let report = whole.report();
        let listed = report.lines().filter(|line| line.trim_start().starts_with("caused by")).count();
        prop_assert!(listed >= whole.causes.len(), "{report}");
        let [source, kind, message] = [&whole.source, &whole.kind, &whole.message].map(|text| Escaped(text));
        prop_assert_eq!(whole.to_string(), format!("[{source}] {kind}: {message}"));
    }
}

/// Requires exactly these keys: the reference implementation rejects others.
fn has_the_keys_of_the_protocol(json: &Value) -> bool {
    let keys: BTreeSet<_> = json.as_object().expect("an object").keys().map(String::as_str).collect();
    keys == ["causes", "message", "source", "stackTrace", "type"].into()
}

fn every_failure(json: &Value, holds: &impl Fn(&Value) -> bool) -> bool {
    let causes = json["causes"].as_array().expect("causes are a list");
    holds(json) && causes.iter().all(|cause| every_failure(cause, holds))
}

/// Leaves out or nulls empty fields, as the bits choose.
fn written_by_others(json: &mut Value, bits: &mut u64, adds: bool) {
    let fields = json.as_object_mut().expect("an object");
    for causes in fields.get_mut("causes").and_then(Value::as_array_mut).into_iter().flatten() {
        written_by_others(causes, bits, adds);
    }
    for frame in fields.get_mut("stackTrace").and_then(Value::as_array_mut).into_iter().flatten() {
        let frame = frame.as_object_mut().expect("an object");
        frame.retain(|_, value| !value.is_null() || take_bit(bits));
    }
    for key in ["causes", "stackTrace"] {
        if fields[key] == json!([]) && take_bit(bits) {
            fields.insert(key.into(), Value::Null);
            if take_bit(bits) {
                fields.remove(key);
            }
        }
    }
    if adds {
        fields.insert("severity".into(), json!({ "level": 3 }));
    }
}

fn take_bit(bits: &mut u64) -> bool {
    let bit = *bits & 1 == 1;
    *bits = bits.rotate_right(1);
    bit
}

fn depth(failure: &Failure) -> usize {
    1 + failure.causes.iter().map(depth).max().unwrap_or(0)
}

/// A chain of failures, each the cause of the next: wrappers, and failures with their own message.
fn chain() -> impl Strategy<Value = Failure> {
    let kinds =
        ["ChildRolledBackException", "a.b.ParentSaidSoException", "x::ChildRollbackFailedException", "T"];
    let level = (prop::sample::select(kinds.to_vec()), prop::bool::weighted(0.05));
    (vec(level, 0..100), 0u32..1000).prop_map(|(levels, end)| {
        let first = Failure::new("T", format!("end {end}"), "s[w]");
        levels.into_iter().enumerate().fold(first, |below, (level, (kind, forks))| {
            let beside = forks.then(|| Failure::new("T", format!("beside {level}"), "s[w]"));
            Failure::new(kind, format!("level {level}"), "s[w]").caused_by([below]).caused_by(beside)
        })
    })
}

pub(super) fn failure() -> impl Strategy<Value = Failure> {
    let text = || vec(any::<char>(), 0..8).prop_map(String::from_iter);
    let place = (text(), any::<i64>(), option::of(text()), option::of(text()));
    let frame = place.prop_map(|(file_name, line_number, class_name, function_name)| Frame {
        file_name,
        line_number,
        class_name,
        function_name,
    });
    let leaf = (text(), text(), text(), vec(frame, 0..2)).prop_map(|(kind, message, source, frames)| {
        let mut failure = Failure::new(kind, message, source);
        failure.stack_trace = frames.into_iter().map(without_nul).collect();
        failure
    });
    leaf.prop_recursive(3, 12, 3, |inner| {
        (inner.clone(), vec(inner, 0..3)).prop_map(|(failure, causes)| failure.caused_by(causes))
    })
}

/// A frame has names from a compiler, so they contain no NUL.
fn without_nul(frame: Frame) -> Frame {
    Frame {
        file_name: frame.file_name.replace('\0', ""),
        class_name: frame.class_name.map(|name| name.replace('\0', "")),
        function_name: frame.function_name.map(|name| name.replace('\0', "")),
        ..frame
    }
}
