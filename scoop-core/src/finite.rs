//! Refuses NaN and infinity, which JSON does not have and serde_json writes as `null`, and numbers with more digits than a
//! [`Value`](serde_json::Value) keeps.
//!
//! A serializer around another one: the value is written once, and checked meanwhile. The place in the value is a list
//! on the stack, which becomes text only for an error.

use std::fmt::{self, Display};

use serde::ser::{
    Error, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

/// Writes a value to the serializer within, unless a number in it cannot be written there. `-0.0` becomes the equal `0.0`, which
/// PostgreSQL stores in its place.
pub(crate) struct Finite<'p, S> {
    serializer: S,
    at: Location<'p>,
}

impl<S> Finite<'_, S> {
    /// For a serializer of text.
    pub(crate) fn new(serializer: S) -> Self {
        Self { serializer, at: Location::Value(Form::Text) }
    }

    /// For a serializer of a [`Value`](serde_json::Value).
    pub(crate) fn as_value(serializer: S) -> Self {
        Self { serializer, at: Location::Value(Form::Value) }
    }
}

/// What a value becomes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// JSON text, which has all digits.
    Text,
    /// A [`Value`](serde_json::Value), whose numbers are `u64`, `i64` or `f64`; with serde_json's feature
    /// `arbitrary_precision` they have all digits.
    Value,
}

/// The name under which serde_json passes on the text of a [`RawValue`](serde_json::value::RawValue).
const RAW_VALUE: &str = "$serde_json::private::RawValue";

#[derive(Clone, Copy)]
enum Location<'p> {
    Value(Form),
    Field(&'p Location<'p>, &'static str),
    Element(&'p Location<'p>, usize),
    Entry(&'p Location<'p>, usize),
}

impl Display for Location<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(_) => f.write_str("it"),
            Self::Field(Location::Value(_), name) => f.write_str(name),
            Self::Field(at, name) => write!(f, "{at}.{name}"),
            Self::Element(at, index) => write!(f, "{at}[{index}]"),
            // Keys may be data that must not be logged.
            Self::Entry(at, index) => write!(f, "{at}[entry {index}]"),
        }
    }
}

/// The nesting at which a value is refused, before its recursion overflows the stack.
const DEPTH_MAX: usize = 256;

impl Location<'_> {
    /// What the whole value becomes.
    fn form(&self) -> Form {
        match self {
            Self::Value(form) => *form,
            Self::Field(outer, _) | Self::Element(outer, _) | Self::Entry(outer, _) => outer.form(),
        }
    }

    fn depth(&self) -> usize {
        let (mut at, mut depth) = (self, 0);
        while let Self::Field(outer, _) | Self::Element(outer, _) | Self::Entry(outer, _) = at {
            (at, depth) = (outer, depth + 1);
        }
        depth
    }
}

struct Located<'p, T: ?Sized> {
    value: &'p T,
    at: Location<'p>,
}

impl<T: Serialize + ?Sized> Serialize for Located<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.at.depth() > DEPTH_MAX {
            return Err(S::Error::custom(format_args!("it is nested deeper than {DEPTH_MAX} levels")));
        }
        self.value.serialize(Finite { serializer, at: self.at })
    }
}

pub(crate) struct Parts<'p, S> {
    serializer: S,
    at: Location<'p>,
    count: usize,
}

impl<'p, S> Parts<'p, S> {
    fn next(&mut self) -> usize {
        self.count += 1;
        self.count - 1
    }
}

/// The methods that pass a value on unchanged.
macro_rules! pass_on {
    ($($method:ident($type:ty)),* $(,)?) => {
        $(fn $method(self, value: $type) -> Result<S::Ok, S::Error> {
            self.serializer.$method(value)
        })*
    };
}

impl<'p, S: Serializer> Finite<'p, S> {
    fn refuse(&self, value: impl Display) -> S::Error {
        S::Error::custom(format_args!("{} is {value}, which JSON cannot express", self.at))
    }

    /// Refuses an integer that has too many digits for a value.
    fn check_integer(&self, integer: impl Serialize + Display) -> Result<(), S::Error> {
        if self.at.form() == Form::Value && serde_json::to_value(&integer).is_err() {
            return Err(S::Error::custom(format_args!("{} is {integer}, {TOO_MANY_DIGITS}", self.at)));
        }
        Ok(())
    }

    fn parts<P>(at: Location<'p>, parts: Result<P, S::Error>) -> Result<Parts<'p, P>, S::Error> {
        parts.map(|serializer| Parts { serializer, at, count: 0 })
    }
}

impl<'p, S: Serializer> Serializer for Finite<'p, S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Parts<'p, S::SerializeSeq>;
    type SerializeTuple = Parts<'p, S::SerializeTuple>;
    type SerializeTupleStruct = Parts<'p, S::SerializeTupleStruct>;
    type SerializeTupleVariant = Parts<'p, S::SerializeTupleVariant>;
    type SerializeMap = Parts<'p, S::SerializeMap>;
    type SerializeStruct = Parts<'p, S::SerializeStruct>;
    type SerializeStructVariant = Parts<'p, S::SerializeStructVariant>;

    fn serialize_f32(self, value: f32) -> Result<S::Ok, S::Error> {
        if value.is_finite() { self.serializer.serialize_f32(value + 0.0) } else { Err(self.refuse(value)) }
    }

    fn serialize_f64(self, value: f64) -> Result<S::Ok, S::Error> {
        if value.is_finite() { self.serializer.serialize_f64(value + 0.0) } else { Err(self.refuse(value)) }
    }

    fn serialize_i128(self, value: i128) -> Result<S::Ok, S::Error> {
        self.check_integer(value)?;
        self.serializer.serialize_i128(value)
    }

    fn serialize_u128(self, value: u128) -> Result<S::Ok, S::Error> {
        self.check_integer(value)?;
        self.serializer.serialize_u128(value)
    }

    fn serialize_str(self, value: &str) -> Result<S::Ok, S::Error> {
        if let Location::Field(at, RAW_VALUE) = self.at
            && at.form() == Form::Value
            && let Some(number) = changed_number(value)
        {
            return Err(S::Error::custom(format_args!("{at} contains {number}, {TOO_MANY_DIGITS}")));
        }
        self.serializer.serialize_str(value)
    }

    pass_on! {
        serialize_bool(bool), serialize_i8(i8), serialize_i16(i16), serialize_i32(i32), serialize_i64(i64),
        serialize_u8(u8), serialize_u16(u16), serialize_u32(u32), serialize_u64(u64), serialize_char(char),
        serialize_bytes(&[u8]),
        serialize_unit_struct(&'static str),
    }

    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        self.serializer.serialize_none()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.serializer.serialize_some(&Located { value, at: self.at })
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.serializer.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result<S::Ok, S::Error> {
        self.serializer.serialize_unit_variant(name, index, variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        self.serializer.serialize_newtype_struct(name, &Located { value, at: self.at })
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let part = Located { value, at: Location::Field(&self.at, variant) };
        self.serializer.serialize_newtype_variant(name, index, variant, &part)
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        Self::parts(self.at, self.serializer.serialize_seq(length))
    }

    fn serialize_tuple(self, length: usize) -> Result<Self::SerializeTuple, S::Error> {
        Self::parts(self.at, self.serializer.serialize_tuple(length))
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        length: usize,
    ) -> Result<Self::SerializeTupleStruct, S::Error> {
        Self::parts(self.at, self.serializer.serialize_tuple_struct(name, length))
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        Self::parts(self.at, self.serializer.serialize_tuple_variant(name, index, variant, length))
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        Self::parts(self.at, self.serializer.serialize_map(length))
    }

    fn serialize_struct(self, name: &'static str, length: usize) -> Result<Self::SerializeStruct, S::Error> {
        Self::parts(self.at, self.serializer.serialize_struct(name, length))
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        Self::parts(self.at, self.serializer.serialize_struct_variant(name, index, variant, length))
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.serializer.collect_str(value)
    }

    fn is_human_readable(&self) -> bool {
        self.serializer.is_human_readable()
    }
}

/// The traits of parts that have no names.
macro_rules! elements {
    ($($trait:ident::$method:ident),* $(,)?) => {
        $(impl<S: $trait> $trait for Parts<'_, S> {
            type Ok = S::Ok;
            type Error = S::Error;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
                let index = self.next();
                self.serializer.$method(&Located { value, at: Location::Element(&self.at, index) })
            }

            fn end(self) -> Result<S::Ok, S::Error> {
                self.serializer.end()
            }
        })*
    };
}

elements! {
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field,
}

/// The traits of parts with names.
macro_rules! fields {
    ($($trait:ident),*) => {
        $(impl<S: $trait> $trait for Parts<'_, S> {
            type Ok = S::Ok;
            type Error = S::Error;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), S::Error> {
                self.serializer.serialize_field(name, &Located { value, at: Location::Field(&self.at, name) })
            }

            fn skip_field(&mut self, name: &'static str) -> Result<(), S::Error> {
                self.serializer.skip_field(name)
            }

            fn end(self) -> Result<S::Ok, S::Error> {
                self.serializer.end()
            }
        })*
    };
}

fields!(SerializeStruct, SerializeStructVariant);

impl<S: SerializeMap> SerializeMap for Parts<'_, S> {
    type Ok = S::Ok;
    type Error = S::Error;

    // The serializer within refuses keys that are not finite, since it has to write them as text.
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), S::Error> {
        self.serializer.serialize_key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
        let index = self.next();
        self.serializer.serialize_value(&Located { value, at: Location::Entry(&self.at, index) })
    }

    fn serialize_entry<K: Serialize + ?Sized, V: Serialize + ?Sized>(
        &mut self,
        key: &K,
        value: &V,
    ) -> Result<(), S::Error> {
        let index = self.next();
        self.serializer.serialize_entry(key, &Located { value, at: Location::Entry(&self.at, index) })
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.serializer.end()
    }
}

const TOO_MANY_DIGITS: &str = "a number that would not be stored as it is; write it as text";

/// The first number of a JSON text that is another one in a [`Value`](serde_json::Value), or in the database.
fn changed_number(json: &str) -> Option<&str> {
    let bytes = json.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                at += 1;
                while bytes.get(at).is_some_and(|byte| *byte != b'"') {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                let is_part = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
                let number = &json[at..at + bytes[at..].iter().take_while(is_part).count()];
                if !is_exact(number) {
                    return Some(number);
                }
                at += number.len();
            }
            _ => at += 1,
        }
    }
    None
}

fn is_exact(number: &str) -> bool {
    let parsed = serde_json::from_str::<serde_json::Value>(number).map(|parsed| parsed.to_string());
    let [Some(parsed), Some(written)] = [parsed.ok().as_deref().and_then(decimal), decimal(number)] else {
        return false;
    };
    // The database has no negative zero.
    parsed == written && !(written.0 && written.1.is_empty())
}

/// A number as its sign, its digits without zeros at both ends, and its exponent of ten.
fn decimal(number: &str) -> Option<(bool, String, i64)> {
    let (is_negative, number) = number.strip_prefix('-').map_or((false, number), |rest| (true, rest));
    let (digits, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = [whole, fraction].concat();
    let digits = all.trim_end_matches('0');
    let zeros = i64::try_from(all.len() - digits.len()).ok()?;
    let exponent = exponent.parse::<i64>().ok()?.checked_sub(i64::try_from(fraction.len()).ok()?)?;
    let digits = digits.trim_start_matches('0').to_owned();
    let exponent = if digits.is_empty() { 0 } else { exponent.checked_add(zeros)? };
    Some((is_negative, digits, exponent))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Serialize};
    use serde_json::value::RawValue;
    use serde_json::{Value, json};

    use crate::stored::Json;

    /// All kinds of values in the data model of serde.
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct All {
        unit: (),
        flag: bool,
        integers: (i8, i16, i32, i64, u8, u16, u32, u64),
        large: u128,
        floats: (f32, f64),
        text: String,
        letter: char,
        some: Option<Box<All>>,
        list: Vec<Kind>,
        map: BTreeMap<String, f64>,
        numbered: BTreeMap<u32, Kind>,
    }

    /// Written as a map.
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Open {
        weight: f64,
        #[serde(flatten)]
        rest: BTreeMap<String, Value>,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Kind {
        Unit,
        New(f64),
        Tuple(f64, u8),
        Struct { weight: Option<f32> },
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Wrapped(f64);

    fn all(some: Option<Box<All>>) -> All {
        All {
            unit: (),
            flag: true,
            integers: (-1, -2, -3, i64::MIN, 1, 2, 3, u64::MAX),
            large: 7,
            floats: (0.1, f64::MAX),
            text: "text".into(),
            letter: 'x',
            some,
            list: vec![Kind::Unit, Kind::New(1.5), Kind::Tuple(-0.0, 1), Kind::Struct { weight: Some(2.5) }],
            map: BTreeMap::from([("a".into(), 1.0), ("b".into(), 2.0)]),
            numbered: BTreeMap::from([(1, Kind::Struct { weight: None })]),
        }
    }

    fn open(weight: f64) -> Open {
        Open { weight, rest: BTreeMap::from([("more".into(), json!({ "deep": [1.25, null] }))]) }
    }

    fn refusal<T: crate::Stored>(value: T) -> String {
        serde_json::to_value(Json(&value)).unwrap_err().to_string()
    }

    #[test]
    fn value_of_finite_numbers_is_written_as_serde_json_writes_it() {
        let value = (all(Some(Box::new(all(None)))), open(1.5));
        let (written, plain) = (serde_json::to_value(Json(&value)), serde_json::to_value(&value));
        assert_eq!(written.unwrap(), plain.unwrap());
        let (written, plain) = (serde_json::to_string(&Json(&value)), serde_json::to_string(&value));
        assert_eq!(written.unwrap(), plain.unwrap().replace("-0.0", "0.0"), "there is no negative zero");
        assert_eq!(Json::to_value(&value).unwrap(), serde_json::to_value(&value).unwrap());
        for text in [r#"{"a": 1.10}"#, "18446744073709551617"] {
            let raw = raw(text);
            let at = super::Location::Value(super::Form::Text);
            assert_eq!(serde_json::to_string(&super::Located { value: &raw, at }).unwrap(), text);
        }
    }

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.into()).unwrap()
    }

    #[test]
    fn number_that_a_value_does_not_keep_is_refused_with_its_place() {
        let refused = |text: &str| match Json::to_value(&BTreeMap::from([("a".to_owned(), vec![raw(text)])]))
        {
            Ok(written) => panic!("{written}"),
            Err(error) => error.to_string(),
        };
        for number in [
            "18446744073709551616",
            "-9223372036854775809",
            "0.12345678901234567890",
            "-0.0",
            "-0",
            "1e-400",
            "1e400",
            "123456789012345678901e-20",
        ] {
            let why = "a number that would not be stored as it is; write it as text";
            assert_eq!(refused(number), format!("it[entry 0][0] contains {number}, {why}"));
            let nested = format!(r#"{{"1e400\"": [1, {number}]}}"#);
            assert_eq!(refused(&nested), format!("it[entry 0][0] contains {number}, {why}"));
        }
        for text in [
            "18446744073709551615",
            "-9223372036854775808",
            "0",
            "0.0",
            "1.10",
            "1e2",
            "1.5E+3",
            "0.1e-7",
            "100000000000000000000",
            "1.7976931348623157e308",
            r#"{"-0": ["1e400", "\\", "\"-0.0", 2.50]}"#,
        ] {
            let written: Value = serde_json::from_str(text).unwrap();
            assert_eq!(Json::to_value(&raw(text)).unwrap(), written, "{text}");
        }
        assert_eq!(
            Json::to_value(&(u128::from(u64::MAX), i128::from(i64::MIN))).unwrap(),
            json!([u64::MAX, i64::MIN])
        );
        let refused = Json::to_value(&(7, u128::MAX)).unwrap_err().to_string();
        assert!(
            refused.starts_with("it[1] is 340282366920938463463374607431768211455, a number"),
            "{refused}"
        );
        assert!(Json::to_value(&Some(i128::MIN)).is_err());
    }

    #[test]
    fn value_that_is_not_read_back_is_refused_by_its_type() {
        #[derive(Serialize, Deserialize)]
        struct Stock {
            #[serde(flatten)]
            by_number: BTreeMap<u32, u32>,
        }
        #[derive(Serialize, Deserialize)]
        struct Secret {
            #[serde(skip_serializing)]
            _code: u32,
        }
        let refused = Json::to_value(&Stock { by_number: BTreeMap::from([(7, 1)]) }).unwrap_err().to_string();
        assert!(refused.contains("::Stock` does not read back what it writes: invalid type"), "{refused}");
        assert!(Json::to_value(&Stock { by_number: BTreeMap::new() }).is_ok());
        let refused = Json::to_value(&Secret { _code: 7 }).unwrap_err().to_string();
        assert!(refused.contains("::Secret` does not read back what it writes: missing field"), "{refused}");
    }

    #[test]
    fn number_that_is_not_finite_is_refused_with_its_place() {
        assert_eq!(refusal(f64::NAN), "it is NaN, which JSON cannot express");
        assert_eq!(refusal(Wrapped(f64::INFINITY)), "it is inf, which JSON cannot express");
        assert_eq!(refusal(Some(f32::NEG_INFINITY)), "it is -inf, which JSON cannot express");
        assert_eq!(refusal(open(f64::NAN)), "it[entry 0] is NaN, which JSON cannot express");
        assert_eq!(refusal(vec![1.0, f64::NAN]), "it[1] is NaN, which JSON cannot express");
        let at = |change: fn(&mut All)| {
            let mut inner = all(None);
            change(&mut inner);
            let text = refusal(vec![all(Some(Box::new(inner)))]);
            text.strip_suffix(" is NaN, which JSON cannot express").unwrap_or(&text).to_owned()
        };
        assert_eq!(at(|it| it.floats.1 = f64::NAN), "it[0].some.floats[1]");
        assert_eq!(at(|it| it.list[1] = Kind::New(f64::NAN)), "it[0].some.list[1].New");
        assert_eq!(at(|it| it.list[2] = Kind::Tuple(f64::NAN, 0)), "it[0].some.list[2][0]");
        let weight = |it: &mut All| it.list[3] = Kind::Struct { weight: Some(f32::NAN) };
        assert_eq!(at(weight), "it[0].some.list[3].weight");
        let entry = |it: &mut All| *it.map.get_mut("b").expect("it is there") = f64::NAN;
        assert_eq!(at(entry), "it[0].some.map[entry 1]");
    }

    #[test]
    fn null_that_is_no_number_is_left_alone() {
        assert_eq!(serde_json::to_value(Json(&None::<f64>)).unwrap(), Value::Null);
        assert_eq!(serde_json::to_value(Json(&json!([null]))).unwrap(), json!([null]));
    }

    #[test]
    fn value_without_end_is_refused_before_the_stack_is_used_up() {
        struct Endless;

        impl Serialize for Endless {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_seq([Endless])
            }
        }

        let error = Endless.serialize(super::Finite::new(serde_json::value::Serializer)).unwrap_err();
        assert!(error.to_string().contains("nested deeper than 256 levels"), "{error}");
    }
}
