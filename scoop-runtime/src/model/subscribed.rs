//! Topics with handlers, for an error about a topic without one.

use std::collections::BTreeSet;
use std::fmt;

use scoop_core::Escaped;

/// The maximum number of similar topics in an error.
const NEAR_MAX: usize = 3;

/// The maximum number of subscribed topics in an error if none is similar.
const OTHERS_MAX: usize = 5;

/// Topics with handlers, for an error about a topic without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Subscribed {
    /// Topics that differ by a few characters, the nearest first.
    pub near: Vec<String>,
    /// Some other topics, if none is near.
    pub others: Vec<String>,
    /// The number of topics that have handlers.
    pub count: usize,
}

impl Subscribed {
    /// The topics to name in an error about a topic without handlers.
    #[doc(hidden)]
    pub fn near<'a>(topic: &str, topics: impl Iterator<Item = &'a str>) -> Self {
        let topics: BTreeSet<_> = topics.collect();
        let distance_max = 2.max(topic.len() / 4);
        let distances = topics.iter().map(|other| (strsim::damerau_levenshtein(topic, other), *other));
        let mut near: Vec<_> = distances.filter(|(distance, _)| *distance <= distance_max).collect();
        near.sort_unstable();
        let near: Vec<_> = near.into_iter().take(NEAR_MAX).map(|(_, other)| other.to_owned()).collect();
        let others = topics.iter().take(if near.is_empty() { OTHERS_MAX } else { 0 });
        Self { others: others.map(|&other| other.to_owned()).collect(), near, count: topics.len() }
    }
}

impl fmt::Display for Subscribed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |topics: &[String], word: &str| {
            topics.iter().map(|topic| format!("`{}`", Escaped(topic))).collect::<Vec<_>>().join(word)
        };
        match (&self.near[..], &self.others[..]) {
            ([], []) => f.write_str("no topic has handlers"),
            ([], others) => {
                write!(f, "topics with handlers: {}", joined(others, ", "))?;
                match self.count.saturating_sub(others.len()) {
                    0 => Ok(()),
                    more => write!(f, " and {more} more"),
                }
            }
            (near, _) => write!(f, "did you mean {}?", joined(near, " or ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subscribed(topic: &str, topics: &[&str]) -> Subscribed {
        Subscribed::near(topic, topics.iter().copied())
    }

    #[test]
    fn near_topic_is_named_before_a_nearer_one_is_missed() {
        let near = subscribed("orders.placd", &["orders.paid", "orders.placed", "mail"]);
        assert_eq!(near.near, ["orders.placed", "orders.paid"]);
        assert_eq!(near.to_string(), "did you mean `orders.placed` or `orders.paid`?");
        assert_eq!((near.others.len(), near.count), (0, 3));
    }

    #[test]
    fn no_near_topic_names_others() {
        let six = ["a", "b", "c", "d", "e", "f"];
        let others = subscribed("orders.placed", &six);
        assert_eq!(others.to_string(), "topics with handlers: `a`, `b`, `c`, `d`, `e` and 1 more");
        assert_eq!(subscribed("orders.placed", &["a"]).to_string(), "topics with handlers: `a`");
        assert_eq!(subscribed("a", &[]).to_string(), "no topic has handlers");
    }
}
