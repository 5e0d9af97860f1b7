//! Documents that are nearly right: JSON with parts replaced, left out, repeated or nested, and texts with replaced
//! letters.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value, json};

/// A change at one place of a document.
#[derive(Clone, Debug)]
enum Change {
    /// Replaces the part.
    Replaced(Value),
    /// Replaces the part by a part of another document.
    Spliced(Index, Index),
    /// Removes an element of the list or object.
    LeftOut,
    /// Nests the part this number of times in a list, or in an object under this key.
    Nested(Option<String>, usize),
    /// Repeats the elements of the list this number of times.
    Repeated(usize),
    /// Replaces letters of the text.
    Scrambled(Vec<(Index, String)>),
}

/// One of these documents with a few changes, usually still JSON.
pub(super) fn document(seeds: &'static [&'static str]) -> impl Strategy<Value = String> {
    let changes = vec((any::<Index>(), change()), 0..5);
    let letters = prop_oneof![4 => Just(vec![]), 1 => letters()];
    (any::<Index>(), changes, letters).prop_map(move |(seed, changes, letters)| {
        let parsed: Vec<Value> = seeds.iter().map(|seed| serde_json::from_str(seed).expect("JSON")).collect();
        let mut document = seed.get(&parsed).clone();
        for (place, change) in changes {
            let place = place.index(count(&document));
            apply(&mut document, place, &change, &parsed);
        }
        scramble(&document.to_string(), &letters)
    })
}

/// One of these texts with a few letters replaced.
pub(super) fn scrambled(seeds: &'static [&'static str]) -> impl Strategy<Value = String> {
    (select(seeds), letters()).prop_map(|(seed, letters)| scramble(seed, &letters))
}

/// Positions in a text, and the replacements of their letters.
fn letters() -> impl Strategy<Value = Vec<(Index, String)>> {
    let other =
        prop_oneof![Just(String::new()), "[0-9TZ:+.-]", "[\"\\\\{}\\[\\],:a-z]", ".{1,3}", Just("\0".into())];
    vec((any::<Index>(), other), 0..4)
}

fn scramble(text: &str, letters: &[(Index, String)]) -> String {
    let mut parts: Vec<String> = text.chars().map(String::from).collect();
    for (place, letter) in letters {
        if !parts.is_empty() {
            let place = place.index(parts.len());
            parts[place] = letter.clone();
        }
    }
    parts.concat()
}

fn change() -> impl Strategy<Value = Change> {
    let key = proptest::option::of(select(&["causes", "trace", "AbsoluteDeadlineKey", "x"][..]));
    prop_oneof![
        3 => scalar().prop_map(Change::Replaced),
        2 => (any::<Index>(), any::<Index>()).prop_map(|(seed, place)| Change::Spliced(seed, place)),
        2 => Just(Change::LeftOut),
        1 => (key, prop_oneof![1usize..4, 60usize..70, 120usize..140])
            .prop_map(|(key, times)| Change::Nested(key.map(str::to_owned), times)),
        1 => (1usize..4).prop_map(Change::Repeated),
        3 => letters().prop_map(Change::Scrambled),
    ]
}

fn scalar() -> impl Strategy<Value = Value> {
    let numbers = prop_oneof![any::<i64>().prop_map(Value::from), any::<f64>().prop_map(Value::from)];
    let texts = prop_oneof!["", ".{0,6}", "[0-9TZ:+.-]{0,30}", Just("\0".to_owned())];
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        numbers,
        texts.prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
    ]
}

/// The number of parts, including the value itself.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(values) => values.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

/// The part with that number, in the order of the document.
fn find(value: &mut Value, number: usize) -> Option<&mut Value> {
    if number == 0 {
        return Some(value);
    }
    let mut left = number - 1;
    let parts: Vec<&mut Value> = match value {
        Value::Array(values) => values.iter_mut().collect(),
        Value::Object(fields) => fields.values_mut().collect(),
        _ => vec![],
    };
    for part in parts {
        let here = count(part);
        if left < here {
            return find(part, left);
        }
        left -= here;
    }
    None
}

fn apply(document: &mut Value, number: usize, change: &Change, others: &[Value]) {
    let Some(place) = find(document, number) else {
        return;
    };
    match change {
        Change::Replaced(value) => *place = value.clone(),
        Change::Spliced(seed, number) => {
            let mut other = seed.get(others).clone();
            let number = number.index(count(&other));
            *place = find(&mut other, number).map_or(Value::Null, |part| part.take());
        }
        Change::LeftOut => match place {
            Value::Array(values) => drop(values.pop()),
            Value::Object(fields) => {
                let key = fields.keys().nth(number % fields.len().max(1)).cloned();
                key.and_then(|key| fields.remove(&key));
            }
            _ => *place = Value::Null,
        },
        Change::Nested(key, times) => {
            for _ in 0..*times {
                let inner = place.take();
                *place = match key {
                    Some(key) => Value::Object(Map::from_iter([(key.clone(), inner)])),
                    None => Value::Array(vec![inner]),
                };
            }
        }
        Change::Repeated(times) => {
            if let Value::Array(values) = place {
                let all = std::mem::take(values);
                *values = std::iter::repeat_n(all, 1 + times).flatten().collect();
            }
        }
        Change::Scrambled(letters) => {
            if let Value::String(text) = place {
                *text = scramble(text, letters);
            }
        }
    }
}
