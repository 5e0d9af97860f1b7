//! Plays many seeds on all cores, and prints totals.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::judge::{self, Wrong};
use crate::play::{self, Played};
use crate::scenario::Scenario;
use crate::shrink::shrink;
use crate::table::table;

/// One of so many seeds is played twice, to check that the result is the same.
const TWICE: u64 = 50;

/// Seeds that once found something, each played whenever the fixed ones are.
///
/// * 41, 368, 866: the events of a parent were not later than those of its children, because a commit in the
///   database in memory was visible before its time.
/// * 394: a worker that freed the runs of dead workers noticed only by polling which workers were left, and
///   claimed none.
/// * 1623, 1001335: a rebuild brought back a run that an operator had retried, and settled since with the one above.
/// * 1000469: a rebuild brought back a run with a requested rollback that its parent had stopped waiting for.
/// * 3000516: a part of a rollback was skipped twice, once for what had failed after it.
/// * 1041199: a sweep woke runs of another process, without notifying it.
/// * 1064225, 1105595: the reference model attributed to the run itself what an operator had skipped or
///   resolved.
/// * 1078419: an operator's skip applied to the part that had failed first, not to the one that failed last.
/// * 1198515: a rebuild brought back a run that had failed again, and was settled with its parent.
/// * 1251205: a process that shut down handed back runs for other processes, which were not notified.
/// * 10000706: a rebuild brought back a run, as one of its descendants was done, that an operator had settled
///   with its parent.
/// * 1001072: the audit missed the cause of a rollback of which only a small part was left.
/// * 1007347: a run awaiting an operator took note of the end of a descendant, so that no operator could repair
///   it any more.
/// * 1016657 and 1023684: a failed attempt to end a pending run counted under definition 0, since the program lacked its saga.
/// * 1018429: the iteration of a run was not always in the working set during its rollback.
/// * 50020115, 50073840: a run with a second rollback request was given another reason than the recorded one.
/// * 90000979, 90012504, 90048832: a rebuild brought back the descendants of a run that awaited an operator or
///   was resolved; and the end of a rollback without parts was skipped, after which no program could go on.
/// * 100039477, 100164027: a rebuild forgot the deadlines of a run that it brought back, and had a run awaiting
///   an operator wait for children.
/// * 1000000000000: the value of a step was not found once the step had another name.
/// * 1000000000012: the worker for which a run was reserved was not notified that it was ready, since another one had
///   the current definition.
/// * 1000000010023: the same for a worker that notified others before it had read their definitions.
/// * 1000000010438: a rollback was stuck, since the program that it needed had refused an earlier part.
const REGRESSIONS: [u64; 32] = [
    41,
    368,
    394,
    866,
    1_623,
    1_000_469,
    1_001_072,
    1_001_335,
    1_007_347,
    1_016_657,
    1_018_429,
    1_023_684,
    1_041_199,
    1_064_225,
    1_078_419,
    1_105_595,
    1_198_515,
    1_251_205,
    3_000_516,
    10_000_706,
    50_020_115,
    50_073_840,
    90_000_979,
    90_012_504,
    90_048_832,
    100_039_477,
    100_164_027,
    1_000_000_000_000,
    1_000_000_000_012,
    1_000_000_000_048,
    1_000_000_010_023,
    1_000_000_010_438,
];

/// How often a long run says how far it is.
const REPORT_PAUSE: Duration = Duration::from_secs(60);

/// How many failures end a run, by default, and how many of them are explained.
const FAILURES_MAX: usize = 3;

/// Totals of the seeds played so far.
#[derive(Default)]
struct Totals {
    seeds: AtomicU64,
    hierarchies: AtomicU64,
    events: AtomicU64,
    calls: AtomicU64,
    faults: Mutex<BTreeMap<&'static str, u64>>,
    failures: Mutex<Vec<u64>>,
    failures_max: usize,
    enough: AtomicBool,
}

/// How many threads there are: one for each core.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Plays the seeds that once found something. Says whether nothing is wrong.
pub(crate) fn repeat_regressions() -> bool {
    let wrong = |seed: &u64| {
        let scenario = Scenario::of(*seed);
        !judge::judge(&scenario, &play::play(&scenario)).is_empty()
    };
    REGRESSIONS.into_iter().filter(wrong).all(explain)
}

/// Plays the seeds until there were so many hierarchies, or so many failures. Says whether nothing was wrong.
pub(crate) fn play(seeds: Range<u64>, hierarchies: u64, failures_max: Option<u64>) -> bool {
    let failures_max = failures_max.and_then(|max| usize::try_from(max).ok()).unwrap_or(FAILURES_MAX);
    let totals = Totals { failures_max, ..Totals::default() };
    let (next, began) = (AtomicU64::new(seeds.start), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..threads() {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let played = totals.hierarchies.load(Ordering::Relaxed);
                    if seed >= seeds.end || played >= hierarchies || totals.enough.load(Ordering::Relaxed) {
                        return;
                    }
                    totals.play(seed);
                }
            });
        }
        scope.spawn(|| {
            let mut reported = Instant::now();
            while next.load(Ordering::Relaxed) < seeds.end
                && totals.hierarchies.load(Ordering::Relaxed) < hierarchies
                && !totals.enough.load(Ordering::Relaxed)
            {
                std::thread::sleep(Duration::from_millis(100));
                if reported.elapsed() > REPORT_PAUSE {
                    reported = Instant::now();
                    println!("{}", totals.description(began.elapsed()));
                }
            }
        });
    });
    println!("{}", totals.description(began.elapsed()));
    let failures = totals.failures();
    if !failures.is_empty() {
        println!("something is wrong with the seeds {failures:?}");
    }
    for seed in failures.iter().take(FAILURES_MAX) {
        explain(*seed);
    }
    failures.is_empty()
}

impl Totals {
    fn play(&self, seed: u64) {
        let scenario = Scenario::of(seed);
        let played = play::play(&scenario);
        let mut fails = !judge::judge(&scenario, &played).is_empty();
        if seed.is_multiple_of(TWICE) {
            let again = play::play(&scenario);
            let mut pairs = played.log.iter().zip(&again.log);
            let other = pairs.find(|(one, other)| one != other);
            if other.is_some() || played.log.len() != again.log.len() {
                println!("seed {seed} does not do the same when it is played again: {other:#?}");
                fails = true;
            }
        }
        self.count(&played);
        if fails {
            let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
            failures.push(seed);
            if failures.len() >= self.failures_max {
                self.enough.store(true, Ordering::Relaxed);
            }
        }
    }

    fn count(&self, played: &Played) {
        self.seeds.fetch_add(1, Ordering::Relaxed);
        self.hierarchies.fetch_add(played.hierarchies, Ordering::Relaxed);
        self.events.fetch_add(played.log.len() as u64, Ordering::Relaxed);
        self.calls.fetch_add(played.notes.calls.len() as u64, Ordering::Relaxed);
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        for (fault, count) in &played.notes.faults {
            *faults.entry(fault).or_default() += count;
        }
    }

    fn failures(&self) -> Vec<u64> {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner).clone();
        failures.sort_unstable();
        failures
    }

    fn description(&self, took: Duration) -> String {
        let count = |total: &AtomicU64| total.load(Ordering::Relaxed);
        let faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let kinds: Vec<_> = faults.iter().map(|(fault, count)| format!("{count} {fault}")).collect();
        let rate = count(&self.hierarchies) as f64 / took.as_secs_f64();
        format!(
            "{} seeds, {} hierarchies, {} events, {} calls; faults: {}; {rate:.0} hierarchies/s, {:.0} per core; {:.1} s",
            count(&self.seeds),
            count(&self.hierarchies),
            count(&self.events),
            count(&self.calls),
            if kinds.is_empty() { "none".into() } else { kinds.join(", ") },
            rate / threads() as f64,
            took.as_secs_f64(),
        )
    }
}

/// Plays one seed, and if something is wrong, shows the smallest scenario in which it still is. Says whether
/// nothing was.
pub(crate) fn explain(seed: u64) -> bool {
    explain_scenario(&Scenario::of(seed))
}

/// Like `explain`, for a scenario as it was printed.
pub(crate) fn explain_scenario(scenario: &Scenario) -> bool {
    let seed = scenario.seed;
    let played = play::play(scenario);
    let wrong = judge::judge(scenario, &played);
    let Some(first) = wrong.first().cloned() else {
        println!("seed {seed}: nothing is wrong\n{}", table(&judge::log(&played), None));
        return true;
    };
    println!("seed {seed}: {} things are wrong", wrong.len());
    tell(&wrong);
    let smallest = shrink(scenario, |candidate| {
        judge::judge(candidate, &play::play(candidate)).iter().any(|wrong| wrong.is_like(&first))
    });
    let played = play::play(&smallest);
    let wrong = judge::judge(&smallest, &played);
    let hierarchy = wrong.iter().find(|wrong| wrong.is_like(&first)).and_then(|wrong| wrong.hierarchy);
    println!("the smallest scenario in which {} does not hold:", first.id);
    println!("{}", serde_json::to_string(&smallest).unwrap_or_default());
    tell(&wrong);
    println!("{}", table(&judge::log(&played), hierarchy));
    false
}

fn tell(wrong: &[Wrong]) {
    for Wrong { id, hierarchy, what } in wrong.iter().take(3) {
        let hierarchy = hierarchy.map_or(String::new(), |hierarchy| format!(" in {hierarchy}"));
        println!("  {id}{hierarchy}: {what}");
    }
}
