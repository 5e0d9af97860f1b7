//! Bugs injected one after the other, to prove that the simulation detects them.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use scoop_runtime::simulation::{Bug, Feature, inject_bug};

use crate::anew::CONTINUE_AS_NEW;
use crate::awaiting::AWAITING;
use crate::commands;
use crate::joined::JOINED;
use crate::judge;
use crate::limited::LIMITED;
use crate::many::threads;
use crate::once::ONCE;
use crate::play;
use crate::prioritized::PRIORITIZED;
use crate::scenario::{CHANGING_FROM, Scenario};
use crate::slow;
use crate::strategies::STRATEGIES;

/// Number of seeds among which each bug has to be found.
const SEEDS_MAX: u64 = 400;

/// Whether bugs are injected.
static MADE: AtomicBool = AtomicBool::new(false);

pub(crate) fn are_made() -> bool {
    MADE.load(Ordering::Relaxed)
}

/// A bug, with the seed that found it and the violated invariants.
type Found = (Bug, Option<(u64, BTreeSet<String>)>);

/// Injects each bug until it is found. Returns whether all are.
pub(crate) fn find_all() -> bool {
    find_some(&Bug::ALL)
}

/// The same with the bugs of this name, or of one feature.
pub(crate) fn find_named(name: &str) -> bool {
    let is_named = |bug: &Bug| {
        let feature = bug.feature().map(|feature| format!("{feature:?}"));
        format!("{bug:?}") == name || feature.is_some_and(|feature| feature == name)
    };
    find_some(&Bug::ALL.into_iter().filter(is_named).collect::<Vec<_>>())
}

fn find_some(bugs: &[Bug]) -> bool {
    MADE.store(true, Ordering::Relaxed);
    let (next, found) = (AtomicUsize::new(0), Mutex::<Vec<Found>>::default());
    std::thread::scope(|scope| {
        for _ in 0..threads() {
            scope.spawn(|| {
                while let Some(bug) = bugs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = find(*bug);
                    found.lock().expect("a search does not panic").push((*bug, result));
                }
            });
        }
    });
    MADE.store(false, Ordering::Relaxed);
    let mut found = found.into_inner().expect("a search does not panic");
    found.sort_by_key(|(bug, _)| format!("{bug:?}"));
    for (bug, result) in &found {
        match result {
            Some((seeds, by)) => {
                let by: Vec<_> = by.iter().map(String::as_str).collect();
                println!("bug {bug:?}: found with seed {seeds}, by {}", by.join(", "));
            }
            None => println!("bug {bug:?}: NOT FOUND in {SEEDS_MAX} seeds"),
        }
    }
    found.iter().all(|(_, result)| result.is_some())
}

/// The first seed that finds the bug, and the violated invariants.
fn find(bug: Bug) -> Option<(u64, BTreeSet<String>)> {
    let _watched = slow::watch(format!("search for the bug {bug:?}"));
    if let Some(feature) = bug.feature() {
        let small = match feature {
            Feature::Commands => return commands::find(bug, SEEDS_MAX),
            Feature::Joins => &JOINED,
            Feature::Signals => &AWAITING,
            Feature::AtMostOnce => &ONCE,
            Feature::Executions => &CONTINUE_AS_NEW,
            Feature::Limits => &LIMITED,
            Feature::Priorities => &PRIORITIZED,
            Feature::Strategies => &STRATEGIES,
        };
        return small.find(bug, SEEDS_MAX);
    }
    inject_bug(bug);
    let first = if bug.needs_changes() { CHANGING_FROM } else { 0 };
    let found = (0..SEEDS_MAX).find_map(|seed| {
        let scenario = Scenario::of(first + seed);
        let wrong = judge::judge(&scenario, &play::play(&scenario));
        let by: BTreeSet<_> = wrong.into_iter().map(|wrong| wrong.id).collect();
        (!by.is_empty()).then_some((seed, by))
    });
    inject_bug(None);
    found
}
