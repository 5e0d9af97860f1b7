//! The audit: compares the ledgers with the recorded events, so that each planned effect exists exactly once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use scoop::Definition;
use scoop::prelude::*;
use scoop_audit::{Invariant, Quiescence};
use sqlx::PgPool;
use uuid::Uuid;

use crate::client::{Book, has_receipt};
use crate::ledger::{self, What};
use crate::plan::{self, Fate};
use crate::record::{self, End, Hierarchy, RunRecord};
use crate::sagas::{Carrier, Clockwork, Gambler, Job, Lap, Node, Runner, Usher, Visitor, Witness};

/// The step names of a node.
const NODE_STEPS: [&str; 3] = ["first", "second", "third"];

/// The first 48 bits of a UUID of version 7 are milliseconds.
const FROM_OTHER_TIMES: &str = "
    SELECT count(*) FROM scoop.message WHERE substr(id::text, 15, 1) = '7' AND abs(
        extract(epoch FROM created_at) * 1000 - ('x' || substr(replace(id::text, '-', ''), 1, 12))::bit(48)::bigint
    ) > 4000";

/// All sagas that the workers have.
const DEFINITIONS: [Definition; 8] = [
    Node::DEFINITION,
    Carrier::DEFINITION,
    Witness::DEFINITION,
    Visitor::DEFINITION,
    Usher::DEFINITION,
    Gambler::DEFINITION,
    Runner::DEFINITION,
    Clockwork::DEFINITION,
];

/// Findings, and the amounts that were checked.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) hierarchies: usize,
    pub(crate) runs: usize,
    pub(crate) events: usize,
    pub(crate) ticks: usize,
    pub(crate) ends: BTreeMap<End, usize>,
    /// Effects in the database, and attempts at effects outside.
    pub(crate) in_database: usize,
    pub(crate) outside: usize,
    /// Attempts outside that were made again under the same key.
    pub(crate) repeated: usize,
    pub(crate) signals: usize,
    /// Steps that run at most once and have begun.
    pub(crate) begun: usize,
    /// Executions after the first one of their run.
    pub(crate) executions: usize,
    /// Messages with an id of another time than the server had, because a clock was moved.
    pub(crate) from_other_times: i64,
    /// Missing effects and hierarchies.
    pub(crate) losses: Vec<String>,
    /// Effects and hierarchies that exist more than once, or should not exist.
    pub(crate) doubles: Vec<String>,
    /// Violations of the rules of the protocol.
    pub(crate) violations: Vec<String>,
}

/// One row of the ledger: what happened in which step, in which iteration.
type Entry = (String, String, i64);

/// Both ledgers, by run.
struct Ledgers {
    in_database: HashMap<Uuid, Vec<Entry>>,
    /// The keys of each effect outside.
    outside: HashMap<Uuid, BTreeMap<Instance, BTreeSet<Uuid>>>,
    /// The effects outside of which there were several attempts.
    repeated: BTreeSet<(Uuid, Instance)>,
    /// The laps of each run, in ascending order: how many are left after each.
    laps: HashMap<Uuid, Vec<i64>>,
}

/// One instance of a step, or of its compensation.
type Instance = (What, String, i64);

/// Audits everything, once all is done.
pub(crate) async fn audit(pool: &PgPool, seed: u64, book: &Book, ledger: &Path) -> Result<Findings> {
    let mut findings = Findings::default();
    let mut ledgers = Ledgers::read(pool, ledger, &mut findings).await?;
    let mut roots: BTreeMap<i64, Vec<Uuid>> = BTreeMap::new();
    let subscriptions = record::subscriptions(pool).await?;
    let knows_commits = record::knows_commits(pool).await?;
    let mut beside = record::Beside::read(pool).await?;
    findings.signals = beside.signals();
    findings.begun = beside.begun_steps();
    findings.executions = beside.executions();
    for part in record::hierarchies(pool).await? {
        for hierarchy in record::read(pool, &part, &subscriptions, &mut beside).await? {
            findings.events += hierarchy.log.events.len();
            let mut wrong = scoop_audit::audit(&hierarchy.log, &DEFINITIONS, Quiescence::Yes);
            // Effects before the commit of a cancellation cannot be distinguished from those after it.
            wrong.retain(|wrong| knows_commits || wrong.invariant != Invariant::GivesUp);
            if !wrong.is_empty() {
                let wrong: Vec<_> = wrong.iter().map(ToString::to_string).collect();
                findings.violations.push(format!("{}\n{}", wrong.join("\n"), hierarchy.story()));
            }
            for run in &hierarchy.runs {
                findings.runs += 1;
                findings.check_run(run, &mut ledgers)?;
                if run.is_root && run.handler == Node::DEFINITION.saga {
                    let number = Job::deserialize(&run.payload)?.number;
                    roots.entry(number).or_default().push(hierarchy.root);
                    findings.check_end(seed, book, number, run.end, &hierarchy);
                }
            }
        }
    }
    let unknown = ledgers.in_database.keys().chain(ledgers.outside.keys()).chain(ledgers.laps.keys());
    for run in unknown {
        findings.doubles.push(format!("run {run} left entries and is not recorded"));
    }
    findings.check_numbers(book, &roots);
    findings.check_receipts(pool, &roots).await?;
    findings.check_ticks(pool).await?;
    findings.from_other_times = sqlx::query_scalar(FROM_OTHER_TIMES).fetch_one(pool).await?;
    Ok(findings)
}

impl Ledgers {
    async fn read(pool: &PgPool, ledger: &Path, findings: &mut Findings) -> Result<Self> {
        let entries = "SELECT run, what, step, iteration FROM ledger";
        let entries: Vec<(Uuid, String, String, i64)> = sqlx::query_as(entries).fetch_all(pool).await?;
        findings.in_database = entries.len();
        let mut in_database: HashMap<Uuid, Vec<Entry>> = HashMap::new();
        for (run, what, step, iteration) in entries {
            in_database.entry(run).or_default().push((what, step, iteration));
        }
        let lines = ledger::read(ledger)?;
        findings.outside = lines.len();
        let mut outside: HashMap<Uuid, BTreeMap<Instance, BTreeSet<Uuid>>> = HashMap::new();
        let mut keys: HashMap<Uuid, (Uuid, Instance)> = HashMap::new();
        let mut repeated = BTreeSet::new();
        for line in lines {
            let instance = (line.what, line.step, i64::from(line.iteration));
            let of = (line.run, instance.clone());
            match keys.insert(line.key, of.clone()) {
                None => {}
                Some(known) if known == of => {
                    findings.repeated += 1;
                    repeated.insert(of);
                }
                Some(known) => findings.doubles.push(format!("{known:?} and {of:?} have one key")),
            }
            outside.entry(line.run).or_default().entry(instance).or_default().insert(line.key);
        }
        let rows: Vec<(Uuid, i64)> =
            sqlx::query_as("SELECT run, left_after FROM lap ORDER BY left_after").fetch_all(pool).await?;
        let mut laps: HashMap<Uuid, Vec<i64>> = HashMap::new();
        for (run, left_after) in rows {
            laps.entry(run).or_default().push(left_after);
        }
        Ok(Self { in_database, outside, repeated, laps })
    }
}

impl Findings {
    /// Checks that each recorded outcome has its effects, and each effect its outcome.
    fn check_run(&mut self, run: &RunRecord, ledgers: &mut Ledgers) -> Result<()> {
        let expected = Expected::of(run)?;
        let mut entered: BTreeMap<Instance, usize> = BTreeMap::new();
        for (name, step, iteration) in ledgers.in_database.remove(&run.id).unwrap_or_default() {
            let what =
                [What::Done, What::Undone, What::TidiedUp].into_iter().find(|what| what.as_str() == name);
            let what = what.ok_or_else(|| Error::msg(format!("what is `{name}`?")))?;
            *entered.entry((what, step, iteration)).or_default() += 1;
        }
        self.check_tidied_up(run, &mut entered);
        self.check_wager(run, ledgers);
        self.check_laps(run, ledgers)?;
        for instance in &expected.in_database {
            match entered.remove(instance) {
                Some(1) => {}
                None => self.losses.push(format!("{run:?} has no entry of {instance:?}")),
                Some(times) => self.doubles.push(format!("{run:?} has {times} entries of {instance:?}")),
            }
        }
        for instance in entered.into_keys() {
            self.doubles.push(format!("{run:?} has an entry of {instance:?}, which did not happen"));
        }
        let outside = ledgers.outside.remove(&run.id).unwrap_or_default();
        for (instance, keys) in outside.iter().filter(|(_, keys)| keys.len() > 1) {
            self.doubles.push(format!("{run:?} has {} keys for {instance:?}", keys.len()));
        }
        for instance in expected.outside.iter().filter(|instance| !outside.contains_key(instance)) {
            self.losses.push(format!("{run:?} did not do {instance:?} outside"));
        }
        if expected.is_half_undone(run) {
            self.losses.push(format!("{run:?} is rolled back, but not all of it"));
        }
        Ok(())
    }

    /// Checks that a node has tidied up after its first step exactly once, on any path.
    fn check_tidied_up(&mut self, run: &RunRecord, entered: &mut BTreeMap<Instance, usize>) {
        let mut times = 0;
        entered.retain(|(what, _, _), count| {
            times += if *what == What::TidiedUp { *count } else { 0 };
            *what != What::TidiedUp
        });
        let is_due = run.handler == Node::DEFINITION.saga
            && run.done.iter().any(|step| step == NODE_STEPS[0])
            && run.end != End::NotUndone;
        match times {
            0 if is_due => self.losses.push(format!("{run:?} has not tidied up")),
            0 | 1 => {}
            times => self.doubles.push(format!("{run:?} has tidied up {times} times")),
        }
    }

    /// Checks that a step that runs at most once was not called again.
    fn check_wager(&mut self, run: &RunRecord, ledgers: &Ledgers) {
        let stake = (run.id, (What::Done, "stake".to_owned(), 0));
        if run.handler == Gambler::DEFINITION.saga && ledgers.repeated.contains(&stake) {
            self.doubles.push(format!("{run:?} has called its step again, which runs at most once"));
        }
    }

    /// Checks that each recorded lap has its entry: those from the first one down to the last one, each once.
    fn check_laps(&mut self, run: &RunRecord, ledgers: &mut Ledgers) -> Result<()> {
        let entered = ledgers.laps.remove(&run.id).unwrap_or_default();
        if run.handler != Runner::DEFINITION.saga {
            return Ok(());
        }
        let planned = i64::from(Lap::deserialize(&run.payload)?.left) + 1;
        let recorded = i64::try_from(run.done.iter().filter(|step| *step == "run_lap").count())?;
        let expected: Vec<_> = (planned - recorded..planned).collect();
        if entered.len() > expected.len() {
            self.doubles.push(format!("{run:?} has {entered:?} laps instead of {expected:?}"));
        } else if entered != expected || run.end == End::Committed && recorded != planned {
            self.losses.push(format!("{run:?} has {entered:?} laps instead of {expected:?}"));
        }
        Ok(())
    }

    /// Checks that a hierarchy ended as planned.
    fn check_end(&mut self, seed: u64, book: &Book, number: i64, end: End, hierarchy: &Hierarchy) {
        self.hierarchies += 1;
        *self.ends.entry(end).or_default() += 1;
        let (plan, fate) = plan::of(seed, number);
        let (commits, risky) = (plan.commits(), plan.is_risky());
        let is_left = matches!(fate, Fate::Left | Fate::Wanted);
        let as_planned = match end {
            End::Unfinished => false,
            End::Committed => commits && !book.undone.contains(&hierarchy.root),
            End::RolledBack => !commits || !is_left,
            End::NotUndone => risky && !(commits && is_left),
        };
        if !as_planned {
            let story = hierarchy.story();
            self.losses.push(format!(
                "hierarchy {number} ended as {end:?}; it was {fate:?}, commits by itself: {commits}, may be impossible \
                 to undo: {risky}\n{story}\n{plan:?}"
            ));
        }
    }

    /// Checks that each number has one hierarchy.
    fn check_numbers(&mut self, book: &Book, roots: &BTreeMap<i64, Vec<Uuid>>) {
        for number in 0..book.count {
            match roots.get(&number).map(Vec::as_slice) {
                None | Some([]) => self.losses.push(format!("hierarchy {number} never began")),
                Some([root]) => {
                    if book.launched.get(&number).is_some_and(|launched| launched != root) {
                        self.losses.push(format!(
                            "hierarchy {number} is not the one that was returned to the client"
                        ));
                    }
                }
                Some(several) => {
                    self.doubles.push(format!("hierarchy {number} exists {} times", several.len()))
                }
            }
        }
        for number in roots.keys().filter(|number| !(0..book.count).contains(*number)) {
            self.doubles.push(format!("hierarchy {number} was never launched"));
        }
    }

    /// Checks that a message launched in a transaction exists exactly if that was committed.
    async fn check_receipts(&mut self, pool: &PgPool, roots: &BTreeMap<i64, Vec<Uuid>>) -> Result<()> {
        let receipts: Vec<(i64, Uuid)> =
            sqlx::query_as("SELECT number, root FROM receipt").fetch_all(pool).await?;
        let receipts: BTreeMap<_, _> = receipts.into_iter().collect();
        let wanted: Vec<i64> = sqlx::query_scalar("SELECT number FROM wanted").fetch_all(pool).await?;
        let wanted: BTreeSet<_> = wanted.into_iter().collect();
        for (number, root) in roots.iter().filter_map(|(number, runs)| Some((number, runs.first()?))) {
            let is_due = has_receipt(*number) && !wanted.contains(number);
            match receipts.get(number) {
                None if is_due => self.losses.push(format!("hierarchy {number} has no receipt")),
                Some(receipt) if receipt != root => {
                    self.losses.push(format!("the receipt of hierarchy {number} names another"));
                }
                _ => {}
            }
        }
        for number in receipts.keys().filter(|number| !roots.contains_key(number)) {
            self.losses.push(format!("there is a receipt of hierarchy {number}, which does not exist"));
        }
        Ok(())
    }

    /// Checks that each tick was run once.
    async fn check_ticks(&mut self, pool: &PgPool) -> Result<()> {
        let ticks = "SELECT -number, count(*) FROM ledger WHERE number < 0 GROUP BY 1 ORDER BY 1";
        let ticks: Vec<(i64, i64)> = sqlx::query_as(ticks).fetch_all(pool).await?;
        self.ticks = ticks.len();
        for (expected, (tick, times)) in (ticks.first().map_or(0, |(first, _)| *first)..).zip(&ticks) {
            if *times > 1 {
                self.doubles.push(format!("tick {tick} ran {times} times"));
            }
            if *tick != expected {
                self.losses.push(format!("tick {expected} never ran, or those after it did twice"));
                break;
            }
        }
        Ok(())
    }
}

/// The effects that follow from the recorded events and the plan.
#[derive(Debug, Default)]
struct Expected {
    in_database: Vec<Instance>,
    outside: Vec<Instance>,
}

impl Expected {
    fn of(run: &RunRecord) -> Result<Self> {
        let mut expected = Self::default();
        let mut iterations: BTreeMap<&str, i64> = BTreeMap::new();
        for name in &run.done {
            let (what, step, iteration) = match undone_by(name) {
                Some((_, _, true)) => continue,
                Some((step, iteration, false)) => (What::Undone, step, iteration),
                None => {
                    let iteration = iterations.entry(name).or_default();
                    *iteration += 1;
                    (What::Done, name.as_str(), *iteration - 1)
                }
            };
            let (in_database, outside) = effects_of(run, step, what)?;
            let instance = (what, name.clone(), iteration);
            expected.in_database.extend(in_database.then(|| instance.clone()));
            expected.outside.extend(outside.then_some(instance));
        }
        Ok(expected)
    }

    /// Whether an effect was not compensated, although the run is rolled back, or was, although it is
    /// committed.
    fn is_half_undone(&self, run: &RunRecord) -> bool {
        let count = |list: &[Instance], what: What| list.iter().filter(|instance| instance.0 == what).count();
        let half = |list: &[Instance]| count(list, What::Done) != count(list, What::Undone);
        let none = |list: &[Instance]| count(list, What::Undone) == 0;
        match run.end {
            End::RolledBack => half(&self.in_database) || half(&self.outside),
            End::Committed => !none(&self.in_database) || !none(&self.outside),
            End::Unfinished | End::NotUndone => false,
        }
    }
}

/// Whether the step, or its compensation, has an effect in the database, and one outside.
fn effects_of(run: &RunRecord, step: &str, what: What) -> Result<(bool, bool)> {
    let handler = run.handler.as_str();
    if handler == Node::DEFINITION.saga {
        let Some(index) = NODE_STEPS.iter().position(|name| *name == step) else { return Ok((false, false)) };
        let plan = &Job::deserialize(&run.payload)?.plan.steps[index];
        return Ok((plan.in_database, plan.outside));
    }
    Ok(match step {
        "carry" => (handler == Carrier::DEFINITION.saga, false),
        "watch" => (false, handler == Witness::DEFINITION.saga),
        "arrive" | "go_in" => (handler == Visitor::DEFINITION.saga, false),
        "stake" => (false, handler == Gambler::DEFINITION.saga),
        "strike" => (handler == Clockwork::DEFINITION.saga && what == What::Done, false),
        _ => (false, false),
    })
}

/// The step that a part of a rollback compensates, its iteration, and whether the part only covers its
/// children.
fn undone_by(name: &str) -> Option<(&str, i64, bool)> {
    let (step, rest) = name.strip_prefix("Rollback of ")?.split_once('[')?;
    let (iteration, rest) = rest.split_once(',')?;
    Some((step, iteration.parse().ok()?, rest != "]"))
}
