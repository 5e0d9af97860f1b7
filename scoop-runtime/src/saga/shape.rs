//! The shape of a stored type, as its `Deserialize` implementation shows it. It distinguishes programs whose types
//! differ.
//!
//! The type deserializes a document that does not exist. The deserializer records the kind of value that the type
//! requests, and returns an error. Each field and variant is visited by a pass of its own, so that an error in one
//! hides no other.

use std::cell::RefCell;
use std::fmt::{Display, Formatter, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};

use scoop_core::Stored;
use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde_json::Value;

/// The maximum depth of a place, since a type may contain itself.
const DEPTH_MAX: usize = 8;

/// The maximum number of named fields of a stored value.
const FIELDS_MAX: usize = 20;

/// The maximum number of places in a shape.
const PLACES_MAX: usize = 500;

/// The shape of a type: a line for each place, with the names of its fields or variants or the kind of its value. Of
/// a sequence, tuple or map the first element counts. A type that accepts any document has only the place `any`.
pub(crate) fn of<T: Stored>() -> String {
    let (mut shape, mut paths) = (String::new(), vec![vec![]]);
    for _ in 0..PLACES_MAX {
        let Some(path) = paths.pop() else { break };
        let place = RefCell::new(None);
        let question = Question { path: &path, place: &place };
        // The answer is always an error. The shape of a type that panics ends at that place.
        let _ = catch_unwind(AssertUnwindSafe(|| T::read_stored(question).is_ok()));
        let Some((text, parts)) = place.take() else { continue };
        let _ = writeln!(shape, "{path:?} {text}");
        if path.len() < DEPTH_MAX {
            paths.extend((0..parts).rev().map(|part| [&*path, &[part]].concat()));
        }
    }
    shape
}

/// The outermost place of a type.
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

/// The kind of value that a type requests at the end of a path, and its number of parts.
type Place = RefCell<Option<(String, usize)>>;

/// The deserializer of a document that does not exist.
#[derive(Clone, Copy)]
struct Question<'a> {
    /// The parts on the way to the place, level by level.
    path: &'a [usize],
    place: &'a Place,
}

/// The error of every answer.
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

impl<'a> Question<'a> {
    /// Records the requested kind, if this is the place; otherwise continues with the next part of the path.
    fn at<T>(
        self,
        (text, parts): (String, usize),
        onward: impl FnOnce(usize, Self) -> Result<T, Nothing>,
    ) -> Result<T, Nothing> {
        match self.path {
            [] => {
                self.place.replace(Some((text, parts)));
                Err(Nothing)
            }
            [part, path @ ..] => onward(*part, Question { path, ..self }),
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

impl<'de> Deserializer<'de> for Question<'_> {
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
        let place = (format!("tuple of {len}"), len.min(1));
        self.at(place, |_, value| visitor.visit_seq(Element(Some(value))))
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
        self.at(("map".into(), 1), |_, value| visitor.visit_map(Part { key: Some(""), value }))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Nothing> {
        let place = (format!("fields {fields:?}"), fields.len());
        self.at(place, |part, value| visitor.visit_map(Part { key: fields.get(part).copied(), value }))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Nothing> {
        let place = (format!("variants {variants:?}"), variants.len());
        self.at(place, |part, value| visitor.visit_enum(Part { key: variants.get(part).copied(), value }))
    }
}

/// One part of a value: a field, a variant, or an entry of a map.
struct Part<'a> {
    key: Option<&'static str>,
    value: Question<'a>,
}

impl Part<'_> {
    fn key(&mut self) -> Result<StrDeserializer<'static, Nothing>, Nothing> {
        self.key.take().map(IntoDeserializer::into_deserializer).ok_or(Nothing)
    }
}

impl<'de> MapAccess<'de> for Part<'_> {
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
struct Element<'a>(Option<Question<'a>>);

impl<'de> SeqAccess<'de> for Element<'_> {
    type Error = Nothing;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Nothing> {
        seed.deserialize(self.0.take().ok_or(Nothing)?).map(Some)
    }
}

impl<'de> EnumAccess<'de> for Part<'_> {
    type Error = Nothing;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(mut self, seed: V) -> Result<(V::Value, Self), Nothing> {
        Ok((seed.deserialize(self.key()?)?, self))
    }
}

impl<'de> VariantAccess<'de> for Part<'_> {
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

    /// A type that reads nothing.
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

    #[test]
    fn shape_of_a_type_that_accepts_any_document_is_any() {
        assert_eq!([of::<Anything>(), of::<serde_json::Value>()], ["[] any\n", "[] any\n"]);
        assert_eq!(of::<(u8, String)>(), "[] tuple of 2\n[0] u8\n");
        assert_eq!(of::<Panicking>(), "");
    }
}
