//! Which runs a command is about: filters, as in `scoop runs`.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::time::SystemTime;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use scoop_operate::{CountRuns, FindRuns, FindValue, OperateExt as _, WaitKind};
use scoop_runtime::{PauseTarget, RunPhase, Scoop};

use super::names;
use super::runs::PAGE_MAX;
use crate::fault::Fault;
use crate::times;

/// Filters that can be combined.
#[derive(Debug, clap::Args)]
pub(crate) struct Filters {
    /// Only runs of this saga
    #[arg(long = "saga", alias = "handler", value_name = "SAGA")]
    handler: Option<String>,
    /// Only runs of messages of this topic
    #[arg(long)]
    pub(super) topic: Option<String>,
    /// Only runs in this state; may be repeated
    #[arg(long, value_parser = one_of(RunPhase::ALL))]
    pub(super) state: Vec<RunPhase>,
    /// Only runs that came into their state at this time or later: a time, or a duration such as 2h for two hours ago
    #[arg(long, value_name = "TIME", value_parser = times::time)]
    since: Option<SystemTime>,
    /// Only runs that came into their state before this time
    #[arg(long, value_name = "TIME", value_parser = times::time)]
    until: Option<SystemTime>,
    /// Only runs with a failure of this code, at any depth: those that roll back or were rolled back because of it, or
    /// whose rollback failed with it; after a retry the latest failure counts
    #[arg(long, value_name = "CODE")]
    pub(super) failed_with: Option<String>,
    /// Only runs that wait for this; may be repeated: children, signal, time, slot, limit, program,
    /// operator, pause
    #[arg(long, value_name = "WHAT")]
    waiting_for: Vec<WaitKind>,
    /// Only runs that are found by this value of a field of their message, or of the first message of their hierarchy; may be
    /// repeated: runs that are found by all of the values
    #[arg(long = "where", value_name = "FIELD=VALUE")]
    fields: Vec<FieldValue>,
    /// Only runs of messages that started a hierarchy
    #[arg(long)]
    roots: bool,
}

/// A value of a field, as `order=2167`.
#[derive(Clone, Debug)]
pub(super) struct FieldValue {
    name: String,
    value: String,
}

impl FromStr for FieldValue {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = text.split_once('=').ok_or("write a field and its value, such as order=2167")?;
        Ok(Self { name: name.to_owned(), value: value.to_owned() })
    }
}

impl FieldValue {
    /// The part of the list that is found by it.
    pub(super) fn of(&self, list: FindRuns) -> FindRuns {
        list.found_by(&self.name, FindValue::written(&self.value))
    }

    /// The part of the counts that is found by it.
    pub(super) fn of_counts(&self, counts: CountRuns) -> CountRuns {
        counts.found_by(&self.name, FindValue::written(&self.value))
    }

    /// Checks that runs can be found by the field.
    ///
    /// # Errors
    ///
    /// [`Fault::NotFound`] if no program has registered it, with similar names.
    pub(super) async fn check_name(&self, scoop: &Scoop) -> Result<(), Fault> {
        let known = scoop.operate().runs().find_fields().await?;
        if known.iter().any(|field| field.name == self.name) {
            return Ok(());
        }
        let hint = names::instead(&self.name, known.iter().map(|field| &*field.name));
        Err(Fault::NotFound(format!("no message is found by a field `{}`{hint}", self.name)))
    }
}

/// Reads one of these states. Spaces may be written as `-` or `_`.
pub(super) fn one_of(phases: impl IntoIterator<Item = RunPhase>) -> impl TypedValueParser<Value = RunPhase> {
    let values = phases.into_iter().map(|phase| {
        let written = |space| phase.name().replace(' ', space);
        PossibleValue::new(written("-")).aliases([written(" "), written("_")])
    });
    PossibleValuesParser::new(values).try_map(|text| text.parse::<RunPhase>())
}

impl Filters {
    /// Whether none is given.
    pub(super) fn is_empty(&self) -> bool {
        self.topic.is_none() && self.is_empty_but_topic()
    }

    /// Whether none is given beside the topic.
    pub(super) fn is_empty_but_topic(&self) -> bool {
        let Self { handler, topic: _, state, since, until, failed_with, waiting_for, fields, roots } = self;
        handler.is_none()
            && state.is_empty()
            && since.is_none()
            && until.is_none()
            && failed_with.is_none()
            && waiting_for.is_empty()
            && fields.is_empty()
            && !roots
    }

    /// The list of the runs that pass.
    pub(super) fn query(&self, scoop: &Scoop) -> FindRuns {
        let mut query = scoop.operate().runs().list();
        if let Some(handler) = &self.handler {
            query = query.handler(handler);
        }
        if let Some(topic) = &self.topic {
            query = query.topic(topic);
        }
        if let Some(since) = self.since {
            query = query.since(since);
        }
        if let Some(until) = self.until {
            query = query.until(until);
        }
        if let Some(code) = &self.failed_with {
            query = query.failed_with(code);
        }
        query = self.state.iter().fold(query, |query, state| query.state(*state));
        query = self.waiting_for.iter().fold(query, |query, wait| query.waiting_for(*wait));
        query = self.fields.iter().fold(query, |query, field| field.of(query));
        if self.roots { query.roots() } else { query }
    }

    /// Checks the names when no run passes: one may be mistyped.
    ///
    /// # Errors
    ///
    /// [`Fault::NotFound`] if no such saga, topic or field was ever registered, or no failure has the code.
    pub(super) async fn check_names(&self, scoop: &Scoop) -> Result<(), Fault> {
        let named =
            [self.handler.clone().map(PauseTarget::handler), self.topic.clone().map(PauseTarget::topic)];
        for target in named.into_iter().flatten() {
            names::check(scoop, &target).await?;
        }
        for field in &self.fields {
            field.check_name(scoop).await?;
        }
        let Some(code) = &self.failed_with else { return Ok(()) };
        let known = scoop.operate().runs().list().failed_with(code).page(1).await?;
        if !known.runs.is_empty() || known.next.is_some() {
            return Ok(());
        }
        let failed = [RunPhase::RolledBack, RunPhase::RollbackFailed];
        let failed = failed.into_iter().fold(scoop.operate().runs().list(), FindRuns::state);
        let codes = failed.page(PAGE_MAX).await?.runs.into_iter().filter_map(|run| Some(run.failure?.code));
        let hint = instead_of_code(code, &codes.collect()).unwrap_or_default();
        Err(Fault::NotFound(format!("no failure has the code `{code}`{hint}")))
    }
}

/// The codes to name in place of one that no failure has; `None` if there are none.
fn instead_of_code(code: &str, codes: &BTreeSet<String>) -> Option<String> {
    if codes.is_empty() {
        return None;
    }
    // The code of a type is its path, or words in place of its name.
    let bare = |code: &str| -> String {
        let name = code.rsplit("::").next().unwrap_or(code);
        name.chars().filter(|char| char.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    };
    let named = codes.iter().find(|it| bare(it) == bare(code));
    Some(match named {
        Some(named) => format!("; did you mean `{named}`?"),
        None => names::instead(code, codes.iter().map(String::as_str)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_by_the_name_of_its_type() {
        let codes = BTreeSet::from(["checkout::stock::OutOfStock", "bank-closed"].map(str::to_owned));
        let instead = |code| instead_of_code(code, &codes).unwrap_or_default();
        assert_eq!(instead("OutOfStock"), "; did you mean `checkout::stock::OutOfStock`?");
        assert_eq!(instead("BankClosed"), "; did you mean `bank-closed`?");
        assert_eq!(instead("bank-close"), "; did you mean `bank-closed`?");
        assert_eq!(instead("sold-out"), "; there are `bank-closed`, `checkout::stock::OutOfStock`");
        assert_eq!(instead_of_code("sold-out", &BTreeSet::new()), None);
    }
}
