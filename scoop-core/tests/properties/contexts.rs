//! Properties of the context: merging, verbatim elements, and refused values.

use std::collections::BTreeMap;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use scoop_core::{Context, ContextError, ContextKey};
use serde::{Deserialize, Serialize};

/// Elements as other programs may write them. Unknown elements must stay verbatim, so there are numbers that no Rust
/// type holds, and texts with several notations.
const ELEMENTS: [&str; 12] = [
    "null",
    "1.10",
    "-0",
    "1e400",
    "123456789012345678901234567890",
    "0.1000000000000000055511151231257827",
    r#""\u0041\/""#,
    r#""Ä""#,
    "[ ]",
    r#"{"b":1,"a":2,"b":3}"#,
    r#"{ "deep" : [ [ { } ] ] }"#,
    r#"{"deadline":"soon"}"#,
];

const KEYS: [&str; 6] = ["Tenant", "tenant", "", "Ä", "with \"quotes\" and \\", "Note"];

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Note(String);

impl ContextKey for Note {
    const KEY: &'static str = "Note";
}

/// A merge keeps the older content, too.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Notes(Vec<u32>);

impl ContextKey for Notes {
    const KEY: &'static str = "Notes";

    fn merge(older: Self, newer: Self) -> Self {
        Self([older.0, newer.0].concat())
    }
}

/// The elements by key, as JSON text.
type Elements = BTreeMap<String, String>;

fn elements() -> impl Strategy<Value = Elements> {
    let key = prop::sample::select(KEYS.to_vec()).prop_map(str::to_owned);
    let element = prop::sample::select(ELEMENTS.to_vec()).prop_map(str::to_owned);
    btree_map(key, element, 0..KEYS.len())
}

fn json(elements: &Elements) -> String {
    let quoted = |key: &String| serde_json::Value::from(key.as_str()).to_string();
    let fields: Vec<_> = elements.iter().map(|(key, text)| format!("{}:{text}", quoted(key))).collect();
    format!("{{{}}}", fields.join(","))
}

fn context(elements: &Elements) -> Context {
    serde_json::from_str(&json(elements)).expect("a JSON object is a context")
}

fn kept(context: &Context) -> Elements {
    context.iter().map(|(key, text)| (key.to_owned(), text.to_owned())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn unknown_elements_are_kept_verbatim(elements in elements()) {
        let context = context(&elements);
        prop_assert_eq!(&kept(&context), &elements);
        prop_assert_eq!(context.is_empty(), elements.is_empty());
        for key in KEYS {
            prop_assert_eq!(context.raw(key), elements.get(key).map(String::as_str));
        }
        let text = serde_json::to_string(&context).expect("a context is JSON");
        prop_assert_eq!(&text, &json(&elements));
        prop_assert_eq!(serde_json::from_str::<Context>(&text).expect("it was a context"), context);
    }

    #[test]
    fn a_merge_is_associative_and_the_newer_element_wins(a in elements(), b in elements(), c in elements()) {
        let [older, newer, newest] = [&a, &b, &c].map(context);
        let left = older.clone().overlaid_by(&newer).overlaid_by(&newest);
        let right = older.clone().overlaid_by(&newer.clone().overlaid_by(&newest));
        prop_assert_eq!(&left, &right);
        let expected: Elements = a.clone().into_iter().chain(b).chain(c).collect();
        prop_assert_eq!(kept(&left), expected);
        prop_assert_eq!(older.clone().overlaid_by(&older), older.clone());
        prop_assert_eq!(older.clone().overlaid_by(&Context::default()), older.clone());
        prop_assert_eq!(&Context::default().overlaid_by(&older), &older);
        prop_assert_eq!(kept(&older), a, "a merge does not change its inputs");
    }

    #[test]
    fn contexts_are_equal_if_their_elements_are(a in elements(), b in elements()) {
        let (one, other) = (context(&a), context(&b));
        prop_assert_eq!(one == other, a == b);
        prop_assert!(one == context(&a) && one == one.clone());
    }

    #[test]
    fn changed_copy_leaves_the_original(elements in elements(), text in "[a-z]{0,3}", removed in 0..KEYS.len()) {
        let mut elements = elements;
        elements.remove(Note::KEY);
        let original = context(&elements);
        let mut copy = original.clone();
        copy.set(Note(text.clone())).expect("it can be stored");
        prop_assert_eq!(copy.get::<Note>().expect("it is a note"), Some(Note(text)));
        prop_assert_eq!(original.get::<Note>().expect("there is none"), None);
        let key = KEYS[removed];
        prop_assert_eq!(copy.remove(key), elements.contains_key(key) || key == Note::KEY);
        prop_assert!(copy.raw(key).is_none() && !copy.remove(key));
        prop_assert_eq!(kept(&original), elements);
    }

    #[test]
    fn set_merges_with_the_older_element(parts in vec(vec(any::<u32>(), 0..3), 1..4)) {
        let mut context = Context::default();
        for part in &parts {
            context.set(Notes(part.clone())).expect("it can be stored");
        }
        prop_assert_eq!(context.get::<Notes>().expect("they are notes"), Some(Notes(parts.concat())));
    }

    /// PostgreSQL cannot store a NUL, even as an escape; an escaped escape is only text.
    #[test]
    fn a_nul_is_refused_and_nothing_else(text in r#"[\x00\\u0n"]{0,8}"#) {
        let mut context = Context::default();
        let set = context.set(Note(text.clone()));
        let refused = matches!(&set, Err(ContextError::Nul { key }) if key == Note::KEY);
        prop_assert_eq!((refused, set.is_ok()), (text.contains('\0'), !text.contains('\0')));
        prop_assert_eq!(context.get::<Note>().expect("it is a note"), set.ok().map(|()| Note(text)));
    }

    /// `bytes` counts the written JSON, except escapes in keys.
    #[test]
    fn bytes_match_the_json(elements in elements()) {
        let plain: Elements = elements.into_iter().filter(|(key, _)| !key.contains('"')).collect();
        let context = context(&plain);
        prop_assert_eq!(context.bytes(), json(&plain).len());
    }
}

#[test]
fn key_with_a_nul_is_escaped_in_the_error() {
    #[derive(Serialize, Deserialize)]
    struct Odd;
    impl ContextKey for Odd {
        const KEY: &'static str = "a\0b";
    }
    let mut context = Context::default();
    let error = context.set(Odd).unwrap_err();
    assert!(matches!(&error, ContextError::Nul { key } if key == "a\\0b"), "{error}");
    assert!(context.is_empty());
}

#[test]
fn element_of_another_type_is_a_mismatch_and_stays() {
    let mut context = context(&[("Note".to_owned(), "7".to_owned())].into());
    let error = context.set(Note("x".into())).unwrap_err();
    assert!(matches!(&error, ContextError::Mismatch { key, .. } if key == "Note"), "{error}");
    assert_eq!(context.raw("Note"), Some("7"));
}
