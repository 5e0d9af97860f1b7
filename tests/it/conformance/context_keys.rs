//! A context, read from a text and written again (scenarios CX).

use scoop::Context;

use super::*;

#[derive(Debug, PartialEq, ContextKey, Serialize, Deserialize)]
struct TestKey {
    value: String,
}

fn read(text: &str) -> Context {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn written(context: &Context) -> String {
    serde_json::to_string(context).expect("a context is JSON")
}

#[test]
fn cx_01_to_cx_05_nothing_is_lost_nulls_least_of_all() {
    for text in [
        r#"{}"#,
        r#"{"key-with-null":null}"#,
        r#"{"a-before":"a","b-nullable":null,"c-after":"b"}"#,
        r#"{"outer":{"inner":null,"range":null}}"#,
        r#"{"items":[1,null,3]}"#,
    ] {
        assert_eq!(written(&read(text)), text);
    }
}

#[test]
fn cx_06_known_and_unknown_elements_lie_side_by_side() -> Result<()> {
    let x = r#"{"TestKey":{"value":"test-value"},"unknown-key":"test-value"}"#;
    let context = read(x);
    assert_eq!(written(&context), x);
    assert_eq!(context.get::<TestKey>()?, Some(TestKey { value: "test-value".into() }));
    assert_eq!(context.raw("unknown-key"), Some(r#""test-value""#));

    let mut newer = context.clone();
    newer.set(TestKey { value: "different-test-value".into() })?;
    let different = r#"{"TestKey":{"value":"different-test-value"},"unknown-key":"test-value"}"#;
    assert_eq!(written(&newer), different);
    assert_eq!(written(&context.clone().overlaid_by(&newer)), different);

    let mut alone = Context::default();
    alone.set(TestKey { value: "first".into() })?;
    assert_eq!(written(&alone), r#"{"TestKey":{"value":"first"}}"#);
    alone.set(TestKey { value: "second".into() })?;
    assert_eq!(written(&alone), r#"{"TestKey":{"value":"second"}}"#);

    let (mut known, mut unknown) = (context.clone(), context);
    assert!(known.remove("unknown-key") && unknown.remove(TestKey::KEY));
    assert_eq!(written(&known), r#"{"TestKey":{"value":"test-value"}}"#);
    assert_eq!(written(&unknown), r#"{"unknown-key":"test-value"}"#);
    Ok(())
}

#[test]
fn cx_written_keys_are_in_alphabetical_order() {
    assert_eq!(written(&read(r#"{"b":1,"a":{"z":1,"y":2},"B":3}"#)), r#"{"B":3,"a":{"z":1,"y":2},"b":1}"#);
}
