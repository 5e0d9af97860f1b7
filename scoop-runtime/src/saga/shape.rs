//! The shape of a stored type, as its `Deserialize` implementation shows it. It distinguishes programs whose types
//! differ.
//!
//! The type deserializes a document that does not exist. The deserializer records the kind of value that the type
//! requests, and returns an error. Each field and variant is visited by a pass of its own, so that an error in one
//! hides no other.
//!
//! The shape of a stored type is part of the definition of its saga. Too little detail does no harm, too much makes an extra
//! definition.

#[cfg(feature = "testing")]
mod change;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};

use scoop_core::{Escaped, Stored, is_signal_wait};
use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde_json::Value;

#[cfg(feature = "testing")]
pub(crate) use self::change::unreadable;

/// The maximum depth of a place, since a type may contain itself.
const DEPTH_MAX: usize = 8;

const FIELDS_MAX: usize = 20;

const PATHS_MAX: usize = 500;

/// A stored type of a saga, and what it is the type of.
pub struct StoredType {
    what: String,
    shape: fn() -> String,
    required: fn(&str) -> String,
}

impl StoredType {
    pub(crate) fn of<T: Stored>(what: impl Into<String>) -> Self {
        Self { what: what.into(), shape: of::<T>, required: required::<T> }
    }

    /// What it is, and its shape; of a signal that a step awaits, with the fields without which it reads nothing. Others have no value
    /// to be tried with when a program starts.
    pub(crate) fn text(&self) -> String {
        let shape = (self.shape)();
        let required = if is_signal_wait(&self.what) { (self.required)(&shape) } else { String::new() };
        format!("{}\n{shape}{required}", self.what)
    }

    /// What it is, and its shape with the fields without which it reads nothing.
    #[cfg(feature = "testing")]
    pub(crate) fn described(&self) -> (&str, String) {
        let shape = (self.shape)();
        let required = (self.required)(&shape);
        (&self.what, shape + &required)
    }
}

/// The shape of a type: a line for each place, with the names of its fields or variants or the kind of its value. Of
/// a sequence, tuple or map the first element counts. A type that accepts any document has only the place `any`.
pub(crate) fn of<T: Stored>() -> String {
    let (mut shape, mut paths) = (String::new(), vec![vec![]]);
    for _ in 0..PATHS_MAX {
        let Some(path) = paths.pop() else { break };
        let node = RefCell::new(None);
        let probe = Probe { path: &path, node: &node };
        // The answer is always an error. The shape of a type that panics ends at that place.
        let _ = catch_unwind(AssertUnwindSafe(|| T::read_stored(probe).is_ok()));
        let Some((text, parts)) = node.take() else { continue };
        let _ = writeln!(shape, "{path:?} {text}");
        if path.len() < DEPTH_MAX {
            paths.extend((0..parts).rev().map(|part| [&*path, &[part]].concat()));
        }
    }
    shape
}

pub(crate) fn outermost<T: Stored>() -> String {
    of::<T>().lines().next().and_then(|line| line.strip_prefix("[] ")).unwrap_or("any").to_owned()
}

/// The outermost place of a stored value, in the same notation.
pub(crate) fn of_stored(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(_) => "bool".into(),
        Value::Number(_) => "number".into(),
        Value::String(_) => "string".into(),
        Value::Array(_) => "sequence".into(),
        Value::Object(fields) => format!("fields {:?}", fields.keys().take(FIELDS_MAX).collect::<Vec<_>>()),
    }
}

/// A line for each place of the shape with fields: those without which the type reads nothing. They are found by leaving
/// each out of a sample of the shape. If the type does not read that, such as one with a date, none is known.
pub(crate) fn required<T: Stored>(shape: &str) -> String {
    let nodes = nodes(shape);
    let reads =
        |value: &Value| catch_unwind(AssertUnwindSafe(|| T::read_stored(value).is_ok())).unwrap_or(false);
    // A text may be an id or a time.
    let samples = TEXTS.map(|text| sample(&nodes, text, &mut vec![]));
    let mut lines = String::new();
    let Some(sample) = samples.into_iter().find(|sample| reads(sample)) else {
        let _ = writeln!(lines, "[] {REQUIRED} {UNKNOWN}");
        return lines;
    };
    for (path, node) in &nodes {
        let Node::Fields(names) = node else { continue };
        let is_needed = |name: &&String| {
            let mut without = sample.clone();
            let fields = fields_at(&mut without, &nodes, path);
            fields.is_some_and(|fields| fields.remove(*name).is_some()) && !reads(&without)
        };
        let needed: Vec<_> = names.iter().filter(is_needed).collect();
        if !needed.is_empty() {
            let _ = writeln!(lines, "{path:?} {REQUIRED} {needed:?}");
        }
    }
    lines
}

/// What keeps a type of this shape from reading the value, a text for each field; empty if nothing is known to. A program that
/// has the type decides more: the shape has no conditions of the type's own.
pub(crate) fn misfits(shape: &str, value: &Value) -> Vec<String> {
    let (nodes, mut found) = (nodes(shape), vec![]);
    let check = Check { nodes: &nodes, required: &required_fields(shape) };
    check.at(&mut vec![], "", value, &mut found);
    found.truncate(MISFITS_MAX);
    found
}

/// The fields without which a type of this shape reads nothing, by their paths.
type Required = BTreeMap<Vec<usize>, Vec<String>>;

fn required_fields(shape: &str) -> Required {
    let fields = |line: &str| {
        let (path, names) = line.split_once(&format!("] {REQUIRED} "))?;
        Some((parts(&format!("{path}]"))?, serde_json::from_str(names).ok()?))
    };
    shape.lines().filter_map(fields).collect()
}

const TEXTS: [&str; 3] = ["", "00000000-0000-0000-0000-000000000000", "2000-01-01T00:00:00Z"];

/// Stands for the fields of a type that reads no sample.
const UNKNOWN: &str = "unknown";

/// Marks the fields without which a type reads nothing.
const REQUIRED: &str = "requires";

const MISFITS_MAX: usize = 10;

enum Node {
    Fields(Vec<String>),
    Variants { names: Vec<String>, others: bool },
    Tuple(usize),
    Kind(String),
}

type Nodes = BTreeMap<Vec<usize>, Node>;

fn nodes(shape: &str) -> Nodes {
    let node = |line: &str| {
        let (path, text) = line.split_once("] ")?;
        let names = |prefix: &str| serde_json::from_str::<Vec<String>>(text.strip_prefix(prefix)?).ok();
        let node = if let Some(fields) = names("fields ") {
            Node::Fields(fields)
        } else if let Some(names) = names("variants ") {
            Node::Variants { names, others: false }
        } else if let Some(names) = names("variants, others ") {
            Node::Variants { names, others: true }
        } else if let Some(len) = text.strip_prefix("tuple of ").and_then(|len| len.parse().ok()) {
            Node::Tuple(len)
        } else {
            Node::Kind(text.to_owned())
        };
        Some((parts(&format!("{path}]"))?, node)).filter(|_| !text.starts_with(REQUIRED))
    };
    shape.lines().filter_map(node).collect()
}

fn parts(path: &str) -> Option<Vec<usize>> {
    serde_json::from_str(path).ok()
}

fn sample(nodes: &Nodes, text: &str, path: &mut Vec<usize>) -> Value {
    match nodes.get(path) {
        Some(Node::Fields(names)) => {
            let fields =
                names.iter().enumerate().map(|(part, name)| (name.clone(), below(nodes, text, path, part)));
            Value::Object(fields.collect())
        }
        Some(Node::Variants { names, .. }) => match (names.first(), nodes.get(&[&**path, &[0]].concat())) {
            (Some(name), Some(Node::Kind(kind))) if kind == "unit" => Value::String(name.clone()),
            (Some(name), _) => {
                Value::Object([(name.clone(), below(nodes, text, path, 0))].into_iter().collect())
            }
            (None, _) => Value::Null,
        },
        Some(Node::Tuple(len)) => Value::Array(vec![below(nodes, text, path, 0); *len]),
        Some(Node::Kind(kind)) => match &**kind {
            "bool" => Value::Bool(false),
            "char" => Value::String("0".into()),
            "string" => Value::String(text.to_owned()),
            "sequence" | "bytes" => Value::Array(vec![]),
            "map" => Value::Object(serde_json::Map::new()),
            "option" | "unit" | "any" => Value::Null,
            _ => Value::Number(0.into()),
        },
        None => Value::Null,
    }
}

fn below(nodes: &Nodes, text: &str, path: &mut Vec<usize>, part: usize) -> Value {
    path.push(part);
    let value = sample(nodes, text, path);
    path.pop();
    value
}

/// The fields at a path of a sample, if there are only fields above it.
fn fields_at<'v>(
    mut value: &'v mut Value,
    nodes: &Nodes,
    path: &[usize],
) -> Option<&'v mut serde_json::Map<String, Value>> {
    for (depth, part) in path.iter().enumerate() {
        let Some(Node::Fields(names)) = nodes.get(&path[..depth]) else { return None };
        value = value.get_mut(names.get(*part)?)?;
    }
    value.as_object_mut()
}

struct Check<'a> {
    nodes: &'a Nodes,
    required: &'a Required,
}

impl Check<'_> {
    fn below(&self, path: &mut Vec<usize>, part: usize, named: &str, value: &Value, found: &mut Vec<String>) {
        path.push(part);
        self.at(path, named, value, found);
        path.pop();
    }

    /// A place that the shape does not have accepts any value.
    fn at(&self, path: &mut Vec<usize>, named: &str, value: &Value, found: &mut Vec<String>) {
        let Some(node) = self.nodes.get(path) else { return };
        let field = |name: &str| if named.is_empty() { name.to_owned() } else { format!("{named}.{name}") };
        let what = if named.is_empty() { "it".to_owned() } else { format!("`{}`", Escaped(named)) };
        match (node, value) {
            // As a sequence of its fields.
            (Node::Fields(_), Value::Array(_)) => {}
            (Node::Fields(names), Value::Object(given)) => {
                for (part, name) in names.iter().enumerate() {
                    match given.get(name) {
                        Some(value) => self.below(path, part, &field(name), value, found),
                        None if self.required.get(path).is_some_and(|required| required.contains(name)) => {
                            found.push(format!("`{}` is missing", Escaped(&field(name))));
                        }
                        None => {}
                    }
                }
            }
            (Node::Variants { names, others }, Value::String(name)) => {
                if !others && !names.contains(name) {
                    found.push(format!("{what} is none of {names:?}"));
                }
            }
            (Node::Variants { names, others }, Value::Object(given)) if given.len() == 1 => {
                for (name, value) in given {
                    match names.iter().position(|it| it == name) {
                        Some(part) => self.below(path, part, &field(name), value, found),
                        None if !others => found.push(format!("{what} is none of {names:?}")),
                        None => {}
                    }
                }
            }
            (Node::Tuple(len), Value::Array(given)) if given.len() == *len => {
                if let Some(first) = given.first() {
                    self.below(path, 0, &field("0"), first, found);
                }
            }
            (Node::Kind(kind), value) => match (&**kind, value) {
                ("option", Value::Null) => {}
                ("option", value) => self.below(path, 0, named, value, found),
                ("sequence", Value::Array(given)) => {
                    for (nth, value) in given.iter().enumerate() {
                        self.below(path, 0, &field(&nth.to_string()), value, found);
                    }
                }
                ("map", Value::Object(given)) => {
                    for (name, value) in given {
                        self.below(path, 0, &field(name), value, found);
                    }
                }
                (kind, value) if is_of_kind(kind, value) => {}
                (kind, value) => found.push(format!("{what} is {}, not {}", an(of_kind(value)), an(kind))),
            },
            (Node::Fields(names), value) => {
                found.push(format!(
                    "{what} is {}, not an object with the fields {names:?}",
                    an(of_kind(value))
                ));
            }
            (Node::Variants { names, .. }, value) => {
                found.push(format!("{what} is {}, not one of {names:?}", an(of_kind(value))));
            }
            (Node::Tuple(len), value) => {
                found.push(format!("{what} is {}, not a list of {len}", an(of_kind(value))));
            }
        }
    }
}

fn is_of_kind(kind: &str, value: &Value) -> bool {
    let whole = |bounds: std::ops::RangeInclusive<i128>| {
        let number = value.as_i64().map(i128::from).or(value.as_u64().map(i128::from));
        number.is_some_and(|number| bounds.contains(&number))
    };
    match kind {
        "bool" => value.is_boolean(),
        "unit" => value.is_null(),
        "char" => value.as_str().is_some_and(|text| text.chars().count() == 1),
        "string" => value.is_string(),
        "bytes" => value.is_string() || value.is_array(),
        "f32" | "f64" | "i128" | "u128" => value.is_number(),
        "i8" => whole(i8::MIN.into()..=i8::MAX.into()),
        "i16" => whole(i16::MIN.into()..=i16::MAX.into()),
        "i32" => whole(i32::MIN.into()..=i32::MAX.into()),
        "i64" => whole(i64::MIN.into()..=i64::MAX.into()),
        "u8" => whole(0..=u8::MAX.into()),
        "u16" => whole(0..=u16::MAX.into()),
        "u32" => whole(0..=u32::MAX.into()),
        "u64" => whole(0..=u64::MAX.into()),
        "sequence" | "map" => false,
        _ => true,
    }
}

fn of_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "number with a fraction",
        Value::Number(_) => "whole number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}

/// With its article, in the words of JSON.
fn an(kind: &str) -> String {
    match kind {
        "null" | "bytes" => kind.to_owned(),
        "unit" => "null".into(),
        "sequence" => "a list".into(),
        "map" => "an object".into(),
        _ if kind.starts_with(['i', 'o']) => format!("an {kind}"),
        _ => format!("a {kind}"),
    }
}

/// The kind of value that a type requests at the end of a path, and its number of parts.
type Asked = RefCell<Option<(String, usize)>>;

/// The deserializer of a document that does not exist.
#[derive(Clone, Copy)]
struct Probe<'a> {
    /// The parts on the way to the place, level by level.
    path: &'a [usize],
    node: &'a Asked,
}

#[derive(Debug)]
struct Nothing;

impl Display for Nothing {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("there is nothing to read")
    }
}

impl std::error::Error for Nothing {}

impl serde::de::Error for Nothing {
    fn custom<T: Display>(_: T) -> Self {
        Self
    }
}

impl<'a> Probe<'a> {
    /// Records the requested kind, if this is the place; otherwise continues with the next part of the path.
    fn at<T>(
        self,
        (text, parts): (String, usize),
        onward: impl FnOnce(usize, Self) -> Result<T, Nothing>,
    ) -> Result<T, Nothing> {
        match self.path {
            [] => {
                self.node.replace(Some((text, parts)));
                Err(Nothing)
            }
            [part, path @ ..] => onward(*part, Probe { path, ..self }),
        }
    }

    fn kind<T>(self, kind: &str) -> Result<T, Nothing> {
        self.at((kind.to_owned(), 0), |_, _| Err(Nothing))
    }
}

macro_rules! kinds {
    ($($method:ident: $kind:literal)*) => {$(
        fn $method<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Nothing> {
            self.kind($kind)
        }
    )*};
}

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Nothing;

    kinds! {
        deserialize_any: "any" deserialize_ignored_any: "any" deserialize_identifier: "any"
        deserialize_bool: "bool" deserialize_char: "char" deserialize_unit: "unit"
        deserialize_i8: "i8" deserialize_i16: "i16" deserialize_i32: "i32" deserialize_i64: "i64" deserialize_i128: "i128"
        deserialize_u8: "u8" deserialize_u16: "u16" deserialize_u32: "u32" deserialize_u64: "u64" deserialize_u128: "u128"
        deserialize_f32: "f32" deserialize_f64: "f64"
        deserialize_str: "string" deserialize_string: "string"
        deserialize_bytes: "bytes" deserialize_byte_buf: "bytes"
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Nothing> {
        self.at(("option".into(), 1), |_, value| visitor.visit_some(value))
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, _: V) -> Result<V::Value, Nothing> {
        self.kind("unit")
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Nothing> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Nothing> {
        self.at(("sequence".into(), 1), |_, value| visitor.visit_seq(Element(Some(value))))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Nothing> {
        let node = (format!("tuple of {len}"), len.min(1));
        self.at(node, |_, value| visitor.visit_seq(Element(Some(value))))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Nothing> {
        self.deserialize_tuple(len, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Nothing> {
        self.at(("map".into(), 1), |_, value| visitor.visit_map(ValuePart { key: Some(""), value }))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Nothing> {
        let node = (format!("fields {fields:?}"), fields.len());
        self.at(node, |part, value| visitor.visit_map(ValuePart { key: fields.get(part).copied(), value }))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Nothing> {
        let [part, ..] = *self.path else {
            let accepts = Cell::new(false);
            let _ = visitor.visit_enum(OtherVariant { accepts: &accepts, value: self });
            let others = if accepts.get() { ", others" } else { "" };
            return self.at((format!("variants{others} {variants:?}"), variants.len()), |_, _| Err(Nothing));
        };
        let value = Self { path: &self.path[1..], ..self };
        visitor.visit_enum(ValuePart { key: variants.get(part).copied(), value })
    }
}

/// One part of a value: a field, a variant, or an entry of a map.
struct ValuePart<'a> {
    key: Option<&'static str>,
    value: Probe<'a>,
}

impl ValuePart<'_> {
    fn key(&mut self) -> Result<StrDeserializer<'static, Nothing>, Nothing> {
        self.key.take().map(IntoDeserializer::into_deserializer).ok_or(Nothing)
    }
}

impl<'de> MapAccess<'de> for ValuePart<'_> {
    type Error = Nothing;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Nothing> {
        seed.deserialize(self.key()?).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Nothing> {
        seed.deserialize(self.value)
    }
}

/// The first element of a sequence. There is no second one, since a type whose `Deserialize` reads nothing would
/// request elements endlessly.
struct Element<'a>(Option<Probe<'a>>);

impl<'de> SeqAccess<'de> for Element<'_> {
    type Error = Nothing;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Nothing> {
        seed.deserialize(self.0.take().ok_or(Nothing)?).map(Some)
    }
}

impl<'de> EnumAccess<'de> for ValuePart<'_> {
    type Error = Nothing;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(mut self, seed: V) -> Result<(V::Value, Self), Nothing> {
        Ok((seed.deserialize(self.key()?)?, self))
    }
}

/// A variant that no enum names: only one with `#[serde(other)]` or the like accepts it.
struct OtherVariant<'a> {
    accepts: &'a Cell<bool>,
    value: Probe<'a>,
}

impl<'de, 'a> EnumAccess<'de> for OtherVariant<'a> {
    type Error = Nothing;
    type Variant = ValuePart<'a>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, ValuePart<'a>), Nothing> {
        let name: StrDeserializer<'_, Nothing> = "\u{1}".into_deserializer();
        let read = seed.deserialize(name)?;
        self.accepts.set(true);
        Ok((read, ValuePart { key: None, value: self.value }))
    }
}

impl<'de> VariantAccess<'de> for ValuePart<'_> {
    type Error = Nothing;

    fn unit_variant(self) -> Result<(), Nothing> {
        self.value.kind("unit")
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Nothing> {
        seed.deserialize(self.value)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Nothing> {
        self.value.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Nothing> {
        self.value.deserialize_struct("", fields, visitor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Serialize};
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Order {
        id: Uuid,
        lines: Vec<Line>,
        paid: Option<Paid>,
        notes: BTreeMap<String, Cents>,
    }

    #[derive(Serialize, Deserialize)]
    struct Line {
        #[serde(rename = "sku")]
        article: String,
        parts: Vec<Line>,
    }

    #[derive(Serialize, Deserialize)]
    enum Paid {
        No,
        Cash(Cents),
        Card { number: u16 },
    }

    #[derive(Serialize, Deserialize)]
    struct Cents(i64);

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Anything {
        Cents(Cents),
        Order(Order),
    }

    struct Panicking;

    impl Serialize for Panicking {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_unit()
        }
    }

    impl<'de> Deserialize<'de> for Panicking {
        fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
            panic!("this type expects a document")
        }
    }

    #[test]
    fn shape_names_each_field_and_variant() {
        let shape = of::<Order>();
        let lines: Vec<_> = shape.lines().collect();
        let expected = [
            r#"[] fields ["id", "lines", "paid", "notes"]"#,
            "[0] string",
            "[1] sequence",
            r#"[1, 0] fields ["sku", "parts"]"#,
            "[1, 0, 0] string",
            "[1, 0, 1] sequence",
        ];
        assert_eq!(lines[..expected.len()], expected);
        let rest: Vec<_> = lines.into_iter().filter(|line| !line.starts_with("[1")).skip(2).collect();
        let expected = [
            "[2] option",
            r#"[2, 0] variants ["No", "Cash", "Card"]"#,
            "[2, 0, 0] unit",
            "[2, 0, 1] i64",
            r#"[2, 0, 2] fields ["number"]"#,
            "[2, 0, 2, 0] u16",
            "[3] map",
            "[3, 0] i64",
        ];
        assert_eq!(rest, expected);
    }

    struct Marker;

    impl Serialize for Marker {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_unit()
        }
    }

    impl<'de> Deserialize<'de> for Marker {
        fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
            Ok(Self)
        }
    }

    #[test]
    fn sequence_of_a_type_that_reads_nothing_has_an_end() {
        assert_eq!(of::<Vec<Marker>>(), "[] sequence\n");
        assert_eq!(of::<BTreeMap<String, Marker>>(), "[] map\n");
        assert_eq!(of::<(Marker, u8)>(), "[] tuple of 2\n");
    }

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Answer {
        Yes,
        No,
    }

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Open {
        Yes,
        #[serde(other)]
        Unknown,
    }

    #[derive(Serialize, Deserialize)]
    struct Approval {
        agreed: bool,
        by: Person,
        answer: Option<Answer>,
        open: Option<Open>,
        #[serde(default)]
        amounts: Vec<u8>,
    }

    #[derive(Serialize, Deserialize)]
    struct Person {
        name: String,
        #[serde(default)]
        age: u32,
    }

    fn misfits_of<T: Stored>(value: Value) -> Vec<String> {
        let shape = of::<T>();
        let found = misfits(&format!("{shape}{}", required::<T>(&shape)), &value);
        assert!(found.is_empty() || T::read_stored(&value).is_err(), "it reads {value}, but: {found:?}");
        found
    }

    #[test]
    fn misfit_names_the_fields_that_the_type_does_not_read() {
        let wrong = json!({
            "agreed": "maybe", "by": { "age": -1 }, "answer": "perhaps", "open": "perhaps", "amounts": [1, 256, "x"],
        });
        let expected = [
            "`agreed` is a string, not a bool",
            "`by.name` is missing",
            "`by.age` is a whole number, not a u32",
            r#"`answer` is none of ["yes", "no"]"#,
            "`amounts.1` is a whole number, not a u8",
            "`amounts.2` is a string, not a u8",
        ];
        assert_eq!(misfits_of::<Approval>(wrong), expected);
        assert_eq!(misfits_of::<Approval>(json!({})), ["`agreed` is missing", "`by` is missing"]);
        let expected = [r#"it is a string, not an object with the fields ["name", "age"]"#];
        assert_eq!(misfits_of::<Person>(json!("Ada")), expected);
        assert_eq!(
            misfits_of::<Paid>(json!({ "Cash": 1.5 })),
            ["`Cash` is a number with a fraction, not an i64"]
        );
        assert_eq!(misfits_of::<(u8, String)>(json!([1])), ["it is a list, not a list of 2"]);
    }

    #[test]
    fn value_that_the_type_reads_has_no_misfit() {
        let right = json!({ "agreed": true, "by": { "name": "Ada" }, "open": "perhaps", "more": 1 });
        assert_eq!(misfits_of::<Approval>(right), [""; 0]);
        assert_eq!(misfits_of::<Person>(json!(["Ada", 7])), [""; 0]);
        assert_eq!(misfits_of::<Paid>(json!("No")), [""; 0]);
        let line = json!({ "sku": "x", "parts": [{ "sku": "y", "parts": [] }] });
        let order = json!({ "id": Uuid::nil(), "lines": [line], "paid": { "Card": { "number": 7 } }, "notes": { "a": 1 } });
        assert_eq!(misfits_of::<Order>(order), [""; 0]);
        for any in [json!(null), json!(1.5), json!({ "x": [] })] {
            assert_eq!(misfits_of::<Value>(any.clone()), [""; 0]);
            assert_eq!(misfits("", &any), [""; 0], "nothing is recorded");
        }
    }

    #[test]
    fn shape_of_a_type_that_accepts_any_document_is_any() {
        assert_eq!([of::<Anything>(), of::<serde_json::Value>()], ["[] any\n", "[] any\n"]);
        assert_eq!(of::<(u8, String)>(), "[] tuple of 2\n[0] u8\n");
        assert_eq!(of::<Panicking>(), "");
    }
}
