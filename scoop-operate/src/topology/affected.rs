//! The sagas that a change of one of them affects.

use std::collections::BTreeSet;
use std::fmt::{Display, Formatter};

use serde::Serialize;

use super::Topology;

/// The sagas that a saga affects, by their names. Displayed as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Affected {
    /// The sagas that launch messages to it, directly or through others: they wait for it.
    pub upstream: Vec<String>,
    /// The sagas to which it launches messages, directly or through others.
    pub downstream: Vec<String>,
}

impl Display for Affected {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let joined = |sagas: &[String]| if sagas.is_empty() { "none".to_owned() } else { sagas.join(", ") };
        write!(f, "upstream: {}\ndownstream: {}", joined(&self.upstream), joined(&self.downstream))
    }
}

impl Topology {
    /// The sagas that a saga affects, as far as launches are known. Both lists are empty if the saga is unknown. Retired handlers
    /// are left out. A saga that launches messages to itself is in neither list.
    ///
    /// ```
    /// # let topology = scoop_operate::Topology::default();
    /// let affected = topology.affected_by("payments");
    /// assert_eq!(affected.to_string(), "upstream: none\ndownstream: none");
    /// ```
    pub fn affected_by(&self, saga: &str) -> Affected {
        let downstream = reached_from(saga, |saga| {
            self.launched_by(saga).into_iter().flat_map(|topic| self.handlers_of(topic)).collect()
        });
        let upstream = reached_from(saga, |saga| {
            let topics: BTreeSet<_> = self
                .handlers
                .iter()
                .filter(|it| it.saga == saga && !it.is_retired)
                .map(|it| &it.topic)
                .collect();
            let launches = self.launches.iter().filter(|it| topics.contains(&it.topic));
            launches.map(|it| &*it.saga).filter(|saga| !self.is_retired(saga)).collect()
        });
        Affected { upstream, downstream }
    }

    /// Whether a saga has handlers, and all of them are retired.
    pub(super) fn is_retired(&self, saga: &str) -> bool {
        let mut own = self.handlers.iter().filter(|it| it.saga == saga).peekable();
        own.peek().is_some() && own.all(|it| it.is_retired)
    }
}

/// The sagas that are reached by these steps, without the first one.
fn reached_from<'a>(first: &'a str, step: impl Fn(&'a str) -> BTreeSet<&'a str>) -> Vec<String> {
    let (mut reached, mut ahead) = (BTreeSet::from([first]), vec![first]);
    while let Some(saga) = ahead.pop() {
        ahead.extend(step(saga).into_iter().filter(|next| reached.insert(next)));
    }
    reached.remove(first);
    reached.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{handler, launch};
    use super::*;

    fn topology() -> Topology {
        let handlers = [
            "checkout on placed",
            "payments on pay",
            "bank on transfer",
            "report on pay",
            "retired former on pay",
            "payments on repay",
        ];
        let launches = [
            "charge of checkout to pay",
            "send of payments to transfer",
            "again of payments to repay",
            "notify of bank to placed",
            "call of former to placed",
        ];
        let (handlers, launches) = (handlers.map(handler).to_vec(), launches.map(launch).to_vec());
        Topology { handlers, launches, ..Topology::default() }
    }

    #[test]
    fn sagas_before_and_after_are_affected() {
        let mut topology = topology();
        topology.launches.retain(|it| it.saga != "bank");
        let affected = topology.affected_by("payments");
        assert_eq!(
            (affected.upstream, affected.downstream),
            (vec!["checkout".to_owned()], vec!["bank".to_owned()])
        );
        let affected = topology.affected_by("bank");
        assert_eq!(affected.to_string(), "upstream: checkout, payments\ndownstream: none");
    }

    #[test]
    fn saga_in_a_cycle_is_affected_from_both_sides() {
        let affected = topology().affected_by("payments");
        assert_eq!(affected.upstream, ["bank", "checkout"]);
        assert_eq!(affected.downstream, ["bank", "checkout", "report"]);
    }

    #[test]
    fn retired_handler_is_not_affected() {
        assert_eq!(topology().affected_by("checkout").upstream, ["bank", "payments"]);
        let affected = topology().affected_by("unknown");
        assert_eq!(affected, Affected::default());
    }
}
