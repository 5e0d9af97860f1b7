//! What a change of a type does to the values that are stored already.

use scoop_core::Escaped;

use super::{Node, Nodes, REQUIRED, UNKNOWN, nodes, required_fields};

/// Why a type of the shape `now` may not read what one of the shape `then` has written, a text for each place; empty if nothing is
/// known to. A shape has no conditions of the type's own.
pub(crate) fn unreadable(then: &str, now: &str) -> Vec<String> {
    let [then, now] = [then, now].map(|shape| Shape {
        nodes: nodes(shape),
        required: required_fields(shape),
        is_unknown: shape.lines().any(|line| line == format!("[] {REQUIRED} {UNKNOWN}")),
    });
    let mut found = vec![];
    Change { then: &then, now: &now }.at(&mut vec![], &mut vec![], "", &mut found);
    found
}

struct Shape {
    nodes: Nodes,
    required: super::Required,
    /// Whether nothing is known of its required fields.
    is_unknown: bool,
}

impl Shape {
    /// Whether it is known which fields are required at this place: fields below others are tried one by one.
    fn knows(&self, path: &[usize]) -> bool {
        let is_fields = |depth: usize| matches!(self.nodes.get(&path[..depth]), Some(Node::Fields(_)));
        !self.is_unknown && (0..path.len()).all(is_fields)
    }

    /// Whether a field of this place reads nothing, too.
    fn is_optional(&self, path: &[usize], part: usize) -> bool {
        matches!(self.nodes.get(&[path, &[part]].concat()), Some(Node::Kind(kind)) if kind == "option" || kind == "any")
    }

    fn requires(&self, path: &[usize], name: &String) -> bool {
        self.required.get(path).is_some_and(|required| required.contains(name))
    }
}

struct Change<'a> {
    then: &'a Shape,
    now: &'a Shape,
}

impl Change<'_> {
    /// Compares a place with one of the other shape. A place that a shape does not have accepts any value.
    fn at(&self, then: &mut Vec<usize>, now: &mut Vec<usize>, named: &str, found: &mut Vec<String>) {
        let (Some(was), Some(is)) = (self.then.nodes.get(&**then), self.now.nodes.get(&**now)) else {
            return;
        };
        let field = |name: &str| if named.is_empty() { name.to_owned() } else { format!("{named}.{name}") };
        let what = if named.is_empty() { "it".to_owned() } else { format!("`{}`", Escaped(named)) };
        match (was, is) {
            (Node::Kind(any), _) | (_, Node::Kind(any)) if any == "any" => {}
            // Fields beside flattened ones are not looked into.
            (Node::Fields(_), Node::Kind(map)) if map == "map" => {}
            (Node::Kind(unit), Node::Kind(is)) if unit == "unit" && is == "option" => {}
            (Node::Variants { .. }, Node::Kind(text)) if text == "string" && self.are_units(then) => {}
            (Node::Kind(was), Node::Kind(is)) if was == "option" && is == "option" => {
                self.below((then, 0), (now, 0), named, found);
            }
            (_, Node::Kind(is)) if is == "option" => {
                now.push(0);
                self.at(then, now, named, found);
                now.pop();
            }
            (Node::Kind(was), _) if was == "option" => found.push(format!("{what} may be null")),
            (Node::Fields(were), Node::Fields(are)) => {
                for (part, name) in are.iter().enumerate() {
                    match were.iter().position(|it| it == name) {
                        Some(before) => {
                            if self.now.requires(now, name)
                                && self.then.knows(then)
                                && !self.then.requires(then, name)
                            {
                                found.push(format!("`{}` may be missing", Escaped(&field(name))));
                            }
                            self.below((then, before), (now, part), &field(name), found);
                        }
                        None if !self.now.knows(now) && !self.now.is_optional(now, part) => {
                            found.push(format!("`{}` is new, and may be required", Escaped(&field(name))));
                        }
                        None if self.now.requires(now, name) => {
                            found.push(format!("`{}` is missing", Escaped(&field(name))));
                        }
                        None => {}
                    }
                }
            }
            (Node::Variants { names: were, .. }, Node::Variants { names: are, others }) => {
                for (before, name) in were.iter().enumerate() {
                    match are.iter().position(|it| it == name) {
                        Some(part) => self.below((then, before), (now, part), &field(name), found),
                        None if !others => {
                            found.push(format!("{what} may be {name:?}, which is none of {are:?}"))
                        }
                        None => {}
                    }
                }
            }
            (Node::Tuple(before), Node::Tuple(after)) if before == after => {
                self.below((then, 0), (now, 0), &field("0"), found);
            }
            (Node::Kind(was), Node::Kind(is)) if was == is => {
                if matches!(&**is, "sequence" | "map") {
                    self.below((then, 0), (now, 0), &field("0"), found);
                }
            }
            (Node::Kind(was), Node::Kind(is)) if widens(was, is) => {}
            (was, is) => found.push(format!("{what} was {} and is {}", in_words(was), in_words(is))),
        }
    }

    /// Whether the variants at this place are names alone.
    fn are_units(&self, then: &[usize]) -> bool {
        let Some(Node::Variants { names, .. }) = self.then.nodes.get(then) else { return false };
        let is_unit = |part: usize| matches!(self.then.nodes.get(&[then, &[part]].concat()), Some(Node::Kind(kind)) if kind == "unit");
        (0..names.len()).all(is_unit)
    }

    fn below(
        &self,
        (then, before): (&mut Vec<usize>, usize),
        (now, after): (&mut Vec<usize>, usize),
        named: &str,
        found: &mut Vec<String>,
    ) {
        then.push(before);
        now.push(after);
        self.at(then, now, named, found);
        then.pop();
        now.pop();
    }
}

/// Whether each value of the first kind is one of the second.
fn widens(was: &str, is: &str) -> bool {
    let bits = |kind: &str| kind[1..].parse::<u32>().ok();
    match (was.as_bytes().first(), is.as_bytes().first()) {
        (Some(b'u'), Some(b'u')) | (Some(b'i'), Some(b'i')) | (Some(b'f'), Some(b'f')) => {
            bits(was).zip(bits(is)).is_some_and(|(was, is)| was <= is)
        }
        (Some(b'u'), Some(b'i')) => bits(was).zip(bits(is)).is_some_and(|(was, is)| was < is),
        (Some(b'u' | b'i'), Some(b'f')) => bits(was).zip(bits(is)).is_some(),
        _ => was == "char" && is == "string",
    }
}

fn in_words(node: &Node) -> String {
    match node {
        Node::Fields(names) => format!("an object with the fields {names:?}"),
        Node::Variants { names, .. } => format!("one of {names:?}"),
        Node::Tuple(len) => format!("a list of {len}"),
        Node::Kind(kind) => super::an(kind),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use scoop_core::Stored;
    use serde::{Deserialize, Serialize};

    use super::super::StoredType;
    use super::*;

    fn described<T: Stored>() -> String {
        StoredType::of::<T>("").described().1
    }

    fn told<Then: Stored, Now: Stored>() -> Vec<String> {
        unreadable(&described::<Then>(), &described::<Now>())
    }

    #[derive(Serialize, Deserialize)]
    struct Order {
        number: u32,
        note: Option<String>,
        way: Way,
        lines: Vec<Line>,
    }

    #[derive(Serialize, Deserialize)]
    enum Way {
        Post,
        Courier { name: String },
    }

    #[derive(Serialize, Deserialize)]
    struct Line {
        sku: String,
        count: u8,
    }

    mod now {
        use super::*;

        #[derive(Serialize, Deserialize)]
        pub(super) struct Wider {
            number: u64,
            note: Option<String>,
            way: Way,
            lines: Vec<Line>,
            gift: Option<bool>,
            #[serde(default)]
            tags: BTreeMap<String, String>,
        }

        #[derive(Serialize, Deserialize)]
        pub(super) struct Narrower {
            number: i8,
            note: String,
            way: OnlyPost,
            lines: Vec<Counted>,
            customer: u64,
        }

        #[derive(Serialize, Deserialize)]
        pub(super) enum OnlyPost {
            Post,
        }

        #[derive(Serialize, Deserialize)]
        pub(super) struct Counted {
            count: String,
        }
    }

    #[test]
    fn type_that_reads_more_reads_what_was_stored() {
        assert_eq!(told::<Order, Order>(), [""; 0]);
        assert_eq!(told::<Order, now::Wider>(), [""; 0]);
        assert_eq!(told::<Line, Option<Line>>(), [""; 0]);
        assert_eq!(told::<Order, serde_json::Value>(), [""; 0]);
    }

    #[derive(Serialize, Deserialize)]
    struct Parcel {
        id: uuid::Uuid,
        lines: Vec<Line>,
    }

    #[derive(Serialize, Deserialize)]
    struct WiderParcel {
        id: uuid::Uuid,
        lines: Vec<WiderLine>,
        weight: u32,
    }

    #[derive(Serialize, Deserialize)]
    struct WiderLine {
        sku: String,
        count: u8,
        gift: bool,
    }

    #[test]
    fn new_field_beside_an_id_or_in_a_list_is_told() {
        assert_eq!(
            told::<Parcel, WiderParcel>(),
            ["`lines.0.gift` is new, and may be required", "`weight` is missing"]
        );
    }

    #[test]
    fn other_ways_to_read_the_same_are_safe() {
        #[derive(Serialize, Deserialize)]
        enum Size {
            Small,
            Large,
        }
        assert_eq!(told::<Size, String>(), [""; 0]);
        assert_eq!(told::<(), Option<u8>>(), [""; 0]);
        assert_eq!(told::<Line, BTreeMap<String, serde_json::Value>>(), [""; 0]);
    }

    #[test]
    fn each_place_that_cannot_be_read_is_told() {
        assert_eq!(
            told::<Order, now::Narrower>(),
            [
                "`number` was a u32 and is an i8",
                "`note` may be missing",
                "`note` may be null",
                "`way` may be \"Courier\", which is none of [\"Post\"]",
                "`lines.0.count` was a u8 and is a string",
                "`customer` is missing",
            ]
        );
        assert_eq!(told::<Option<u8>, u8>(), ["it may be null"]);
        assert_eq!(told::<(u8, u8), (u8, u8, u8)>(), ["it was a list of 2 and is a list of 3"]);
        assert_eq!(told::<u8, Line>(), ["it was a u8 and is an object with the fields [\"sku\", \"count\"]"]);
    }
}
