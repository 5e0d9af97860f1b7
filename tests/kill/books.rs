//! The audit of one hierarchy: what both ledgers and the entity must have, after any death.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use scoop::prelude::*;
use sqlx::PgPool;
use uuid::Uuid;

use crate::sagas::{EXECUTIONS, Plot, Stock};

/// The entries of one number: the keys of each effect, one for each entry.
type Entries = BTreeMap<String, Vec<Uuid>>;

/// What is known of one hierarchy in the end.
#[derive(Clone, Debug)]
pub(crate) struct Books {
    pub(crate) outcome: String,
    inside: Entries,
    outside: Entries,
    entity: (i64, u64),
    /// The messages that a joined saga still waits for.
    waiting: i64,
}

/// The promises: how often each effect may exist.
#[derive(Default)]
struct Promises {
    outcomes: Vec<&'static str>,
    inside: BTreeMap<String, RangeInclusive<usize>>,
    outside: BTreeMap<String, RangeInclusive<usize>>,
    /// The units that are taken in the end, and the version of the entity.
    entity: (i64, u64),
}

/// At least once.
const OFTEN: RangeInclusive<usize> = 1..=usize::MAX;

impl Books {
    pub(crate) async fn read(pool: &PgPool, outside: &PgPool, number: i64, outcome: String) -> Result<Self> {
        let stock = Scoop::client(pool.clone()).entity::<Stock>(number).await?;
        let waiting = "SELECT count(*) FROM scoop.join_member WHERE joined IS NULL AND key = $1";
        let waiting = sqlx::query_scalar(waiting).bind(number.to_string()).fetch_one(pool).await?;
        Ok(Self {
            outcome,
            inside: entries(pool, number).await?,
            outside: entries(outside, number).await?,
            entity: (stock.state.taken, stock.version),
            waiting,
        })
    }

    /// How often the code with this effect outside ran.
    pub(crate) fn outside(&self, what: &str) -> usize {
        self.outside.get(what).map_or(0, Vec::len)
    }

    /// Whether an effect outside exists twice.
    pub(crate) fn repeats(&self) -> bool {
        self.outside.values().any(|keys| keys.len() > 1)
    }

    /// Everything that differs from what the page on delivery promises.
    pub(crate) fn violations(&self, plot: Plot) -> Vec<String> {
        let interrupted = self.outcome == INTERRUPTED;
        let promises = Promises::of(plot, interrupted);
        let mut wrong = vec![];
        if !promises.outcomes.contains(&&*self.outcome) {
            wrong.push(format!("outcome {:?} instead of one of {:?}", self.outcome, promises.outcomes));
        }
        wrong.extend(differing("inside", &promises.inside, &self.inside));
        wrong.extend(differing("outside", &promises.outside, &self.outside));
        for (what, keys) in &self.outside {
            if keys.iter().collect::<BTreeSet<_>>().len() > 1 {
                wrong.push(format!("outside: {what} under several keys: {keys:?}"));
            }
            if let Some([key]) = self.inside.get(what).map(Vec::as_slice)
                && !keys.contains(key)
            {
                wrong.push(format!("{what}: the key {key} inside is not that outside"));
            }
        }
        if self.entity != promises.entity {
            wrong.push(format!("entity: (taken, version) is {:?}, not {:?}", self.entity, promises.entity));
        }
        let recalled = self.inside.get("recall").map_or(0, Vec::len);
        if plot == Plot::Fails && self.inside.get("dispatch").map_or(0, Vec::len) != recalled {
            wrong.push("the joined saga is not undone".to_owned());
        }
        if self.waiting != 0 {
            wrong.push(format!("{} messages wait for a set", self.waiting));
        }
        wrong
    }
}

/// The outcome of a payment whose worker died in the step that runs at most once.
pub(crate) const INTERRUPTED: &str = "rolled back: interrupted charge";

impl Promises {
    fn of(plot: Plot, interrupted: bool) -> Self {
        match plot {
            Plot::Ships => Self::inside_once_and_outside_at_least_once(),
            Plot::Fails => Self::compensated_once_and_reported_once(),
            Plot::Pays if interrupted => Self::at_most_once_and_interrupted(),
            Plot::Pays => Self::at_most_once_and_committed(),
            Plot::Reads => Self::once_in_each_execution(),
        }
    }

    fn inside_once_and_outside_at_least_once() -> Self {
        let promises = Self::ends(&["committed"]).entity((3, 1)).outside(&["reserve", "ship"], OFTEN);
        promises.inside(&["reserve", "pack", "take", "dispatch", "ship", "close"], 1..=1)
    }

    fn compensated_once_and_reported_once() -> Self {
        let promises = Self::ends(&["rolled back: no courier"]).entity((0, 2));
        let promises = promises.outside(&["reserve", "ship", "release"], OFTEN);
        let promises = promises.inside(&["reserve", "pack", "take", "ship"], 1..=1);
        let promises = promises.inside(&["unship", "unpack", "release"], 1..=1);
        // The request to roll the joined saga back may come before it has begun.
        let promises = promises.inside(&["dispatch", "recall"], 0..=1);
        promises.inside(&["failed shop rolled back", "failed dispatch rolled back"], 1..=1)
    }

    /// The worker died in the step. Neither its effect inside nor a later step exists, and the failure says so.
    fn at_most_once_and_interrupted() -> Self {
        let promises = Self::ends(&[INTERRUPTED]).outside(&["charge"], 0..=1);
        let promises = promises.inside(&["prepare", "give back after interrupted charge"], 1..=1);
        promises.inside(&["failed payments rolled back"], 1..=1)
    }

    fn at_most_once_and_committed() -> Self {
        let promises = Self::ends(&["committed"]).outside(&["charge"], 1..=1);
        promises.inside(&["prepare", "charge", "thank"], 1..=1)
    }

    fn once_in_each_execution() -> Self {
        (0..EXECUTIONS).fold(Self::ends(&["committed"]), |promises, cursor| {
            let [fetch, keep, turn] = ["fetch", "keep", "turn"].map(|what| format!("{what} {cursor}"));
            promises.outside(&[&fetch], OFTEN).inside(&[&fetch, &keep, &turn], 1..=1)
        })
    }

    fn ends(outcomes: &[&'static str]) -> Self {
        Self { outcomes: outcomes.to_vec(), ..Self::default() }
    }

    fn entity(mut self, entity: (i64, u64)) -> Self {
        self.entity = entity;
        self
    }

    fn inside(mut self, effects: &[&str], often: RangeInclusive<usize>) -> Self {
        self.inside.extend(effects.iter().map(|what| ((*what).to_owned(), often.clone())));
        self
    }

    fn outside(mut self, effects: &[&str], often: RangeInclusive<usize>) -> Self {
        self.outside.extend(effects.iter().map(|what| ((*what).to_owned(), often.clone())));
        self
    }
}

/// The effects that exist too often or too seldom. An effect without a promise may not exist.
fn differing(
    ledger: &str,
    promised: &BTreeMap<String, RangeInclusive<usize>>,
    found: &Entries,
) -> Vec<String> {
    let effects: BTreeSet<_> = promised.keys().chain(found.keys()).collect();
    let wrong = effects.into_iter().filter_map(|what| {
        let count = found.get(what).map_or(0, Vec::len);
        let often = promised.get(what).cloned().unwrap_or(0..=0);
        (!often.contains(&count)).then(|| format!("{ledger}: {what} exists {count} times, not {often:?}"))
    });
    wrong.collect()
}

async fn entries(pool: &PgPool, number: i64) -> Result<Entries> {
    let sql = "SELECT what, key FROM ledger WHERE number = $1";
    let rows: Vec<(String, Uuid)> = sqlx::query_as(sql).bind(number).fetch_all(pool).await?;
    let mut entries = Entries::new();
    for (what, key) in rows {
        entries.entry(what).or_default().push(key);
    }
    Ok(entries)
}
