//! Contexts that are written, read and written again (scenarios CM).
//!
//! Their text stays the same. If PostgreSQL keeps them in between, their values stay the same.

use std::collections::BTreeMap;
use std::fmt::Debug;

use scoop::{Context, ContextError};
use serde_json::{Value, json};

use super::*;
use crate::support::Database;

/// Elements of these types.
macro_rules! elements {
    ($($name:ident { $($field:ident: $type:ty),* })*) => {
        $(
            #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
            struct $name { $($field: $type),* }

            impl ContextKey for $name {
                const KEY: &'static str = concat!(stringify!($name), "Key");
            }
        )*
    };
}

elements! {
    Text { value: String }
    Numbers { int: i32, long: i64, double: f64, float: f32 }
    Flag { value: bool }
    Nullable { maybe: Option<String>, other: Option<i32> }
    List { items: Vec<String> }
    Lists { rows: Vec<Vec<i32>> }
    Nested { inner: Inner }
    Deep { one: One }
    Map { values: BTreeMap<String, Value> }
    Zoo { animals: Vec<Animal> }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Inner {
    name: String,
    count: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct One {
    two: Two,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Two {
    three: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
enum Animal {
    Dog { name: String },
    Cat { lives: u8 },
}

fn read(text: &str) -> Context {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn written(context: &Context) -> String {
    serde_json::to_string(context).expect("a context is JSON")
}

/// Asserts that the context has the same text each time it is written, and that the element is
/// unchanged. Returns the context.
#[track_caller]
fn survives<K: ContextKey + PartialEq + Debug + Clone>(element: K) -> Context {
    let mut context = Context::default();
    context.set(element.clone()).expect("it can be stored");
    let once = written(&context);
    let twice = written(&read(&once));
    let thrice = written(&read(&twice));
    assert_eq!((&twice, &thrice), (&once, &once));
    assert_eq!(read(&thrice).get::<K>().expect("it can be read"), Some(element));
    context
}

fn texts() -> Vec<(&'static str, String)> {
    let many: String = (0..1_000).map(|n| format!("item\t{n}\n")).collect();
    let cases = [
        ("CM-01 tab", "a\tb"),
        ("CM-02 newline", "a\nb"),
        ("CM-03 carriage return", "a\rb"),
        ("CM-04 both", "a\r\nb"),
        ("CM-05 quotes", r#"say "hello""#),
        ("CM-06 backslashes", r"C:\Users\test\file.txt"),
        ("CM-07 slashes", "a/b//c"),
        ("CM-08 backspace", "a\u{8}b"),
        ("CM-09 form feed", "a\u{c}b"),
        ("CM-11 all escapes", "\"\\/\u{8}\u{c}\n\r\t"),
        ("CM-12 runs of them", "\t\t\n\n\r\r\"\"\\\\"),
        ("CM-14 CJK", "漢字とカナ"),
        ("CM-15 beyond the BMP", "😀🎉👩‍👩‍👧"),
        ("CM-16 Arabic", "مرحبا بالعالم"),
        ("CM-17 mixed", "abc漢字def😀"),
        ("CM-18 control characters", "\u{1}\u{1f}"),
        ("CM-19 zero width", "a\u{200b}b\u{feff}c\u{200d}"),
        ("CM-20 empty", ""),
        ("CM-21 spaces", "     "),
        ("CM-24 like JSON", r#"{"key": [1, null]}"#),
        ("CM-25 like a number", "12345"),
        ("CM-26 like a boolean", "true"),
        ("CM-27 like null", "null"),
        ("like an escape", r"\u0000"),
    ];
    let cases = cases.map(|(case, text)| (case, text.to_owned())).into_iter();
    cases.chain([("CM-22 long", "x".repeat(10_000)), ("CM-23 many", many)]).collect()
}

#[test]
fn cm_01_to_cm_09_cm_11_to_cm_27_texts_of_all_characters_survive() {
    for (case, text) in texts() {
        println!("{case}");
        let context = survives(Text { value: text.clone() });
        let value: Value = serde_json::from_str(context.raw("TextKey").expect("it is there")).expect("JSON");
        assert_eq!(value, json!({"value": text}));
    }
}

/// CM-10. The reference writes it, as JSON has it, and PostgreSQL refuses it in the middle of a
/// settlement. Here it is refused where it arises, by name (W-36).
#[test]
fn cm_10_a_nul_is_refused_by_name() {
    let mut context = Context::default();
    context.set(Flag { value: true }).expect("it can be stored");
    for text in ["a\0b", "\\\0", "\0"] {
        let refused = context.set(Text { value: text.into() }).expect_err("no NUL can be stored");
        assert!(matches!(&refused, ContextError::Nul { key } if key == "TextKey"), "{refused:?}");
        assert!(refused.to_string().contains("`TextKey`"), "{refused}");
    }
    assert_eq!(written(&context), r#"{"FlagKey":{"value":true}}"#, "it stays as it was");
}

#[test]
fn cm_28_to_cm_32_numbers_survive_to_their_last_digit() {
    for numbers in numbers() {
        survives(numbers);
    }
}

#[expect(clippy::approx_constant, reason = "the number is that of scenario CM-28, not that of the circle")]
fn numbers() -> [Numbers; 5] {
    let of = |int, long, double, float| Numbers { int, long, double, float };
    [
        of(42, 42, 42.0, 42.0),
        of(0, 0, 0.0, 0.0),
        of(-42, -100, -3.14, -2.5),
        of(i32::MAX, i64::MAX, f64::MAX, f32::MAX),
        of(i32::MIN, i64::MIN, f64::from_bits(1), f32::from_bits(1)),
    ]
}

#[test]
fn cm_33_to_cm_37_booleans_and_nulls_survive() {
    survives(Flag { value: true });
    survives(Flag { value: false });
    let text = || Some("text".to_owned());
    for (maybe, other) in [(None, None), (text(), Some(1)), (text(), None), (None, Some(1))] {
        survives(Nullable { maybe, other });
    }
    assert_eq!(
        written(&survives(Nullable { maybe: None, other: None })),
        r#"{"NullableKey":{"maybe":null,"other":null}}"#
    );
}

#[test]
fn cm_38_to_cm_50_lists_objects_and_maps_survive() {
    let special = "tab\t, newline\n, quote\", backslash\\";
    let lists: [&[&str]; 5] = [&[], &["one"], &["a", "b", "c"], &[special, special], &["", "", ""]];
    for items in lists {
        survives(List { items: items.iter().map(|item| (*item).to_owned()).collect() });
    }
    survives(Lists { rows: vec![vec![1, 2], vec![], vec![3]] });
    for name in ["plain", special] {
        survives(Nested { inner: Inner { name: name.into(), count: 3 } });
        survives(Deep { one: One { two: Two { three: name.into() } } });
    }
    let values =
        json!({"text": special, "number": 1.5, "flag": true, "list": [1, "2", null], "map": {"a": {"b": 1}}});
    for values in [json!({}), values] {
        survives(Map { values: serde_json::from_value(values).expect("a map") });
    }
}

const UNKNOWN: [&str; 6] = [
    r#"{"Unknown":{"a":1,"b":"two"}}"#,
    r#"{"Unknown":{"a":"x\ty"}}"#,
    r#"{"Unknown":{"a":{"b":{"c":{}}}}}"#,
    r#"{"Unknown":[1,2,3]}"#,
    r#"{"Unknown":[null,1.10,true,{"b":null},[]]}"#,
    r#"{"Unknown":"\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"}"#,
];

#[test]
fn cm_51_to_cm_56_unknown_elements_stay_to_the_letter() {
    for text in UNKNOWN {
        assert_eq!(written(&read(&written(&read(text)))), text);
        // Also if something else is added.
        let mut context = read(text);
        context.set(Flag { value: true }).expect("it can be stored");
        assert!(context.remove("FlagKey"));
        assert_eq!(written(&context), text);
    }
}

/// Several elements of several types.
fn several() -> Context {
    let mut context = Context::default();
    context.set(Text { value: "a\t\"b\"\n".into() }).expect("it can be stored");
    context.set(Nested { inner: Inner { name: "x\\y".into(), count: 1 } }).expect("it can be stored");
    context.set(List { items: vec!["a".into(), "b".into()] }).expect("it can be stored");
    context
}

#[test]
fn cm_57_to_cm_62_several_elements_survive_together_again_and_again() {
    let context = several();
    let once = written(&context);
    assert_eq!(
        once,
        r#"{"ListKey":{"items":["a","b"]},"NestedKey":{"inner":{"name":"x\\y","count":1}},"TextKey":{"value":"a\t\"b\"\n"}}"#
    );
    let twice = written(&read(&once));
    assert_eq!((written(&read(&twice)), &*twice), (once.clone(), &*once));

    // Joined from two sides.
    let mut other = Context::default();
    other.set(Flag { value: false }).expect("it can be stored");
    let joined = context.clone().overlaid_by(&other);
    assert_eq!(
        joined.iter().map(|(key, _)| key).collect::<Vec<_>>(),
        ["FlagKey", "ListKey", "NestedKey", "TextKey"]
    );
    assert_eq!(read(&written(&joined)), joined);
}

#[test]
fn cm_63_a_list_of_variants_keeps_its_tags() {
    let animals = vec![Animal::Dog { name: "Rex".into() }, Animal::Cat { lives: 9 }];
    assert_eq!(
        written(&survives(Zoo { animals })),
        r#"{"ZooKey":{"animals":[{"type":"Dog","name":"Rex"},{"type":"Cat","lives":9}]}}"#
    );
}

/// A step finds the values that the client gave, after PostgreSQL stored them. `jsonb` keeps
/// values, not blanks or the order of keys.
#[tokio::test(flavor = "multi_thread")]
async fn cm_contexts_survive_postgresql() -> Result<()> {
    let db = Database::new().await;
    let mut contexts: Vec<Context> = UNKNOWN.map(read).into();
    contexts.extend(texts().into_iter().map(|(_, value)| survives(Text { value })));
    contexts.extend(numbers().map(survives));
    contexts.push(several());
    for context in contexts {
        let text = written(&context);
        let sql = "SELECT $1::jsonb::text";
        let kept: String = sqlx::query_scalar(sql).bind(&text).fetch_one(db.pool()).await?;
        let values = [&text, &kept].map(|text| serde_json::from_str::<Value>(text).expect("JSON"));
        assert_eq!(values[0], values[1]);
        let kept = read(&kept);
        assert_eq!(kept.get::<Text>()?, context.get::<Text>()?);
        assert_eq!(kept.get::<Numbers>()?, context.get::<Numbers>()?);
    }
    Ok(())
}
