//! Whether the simulation finds mistakes: the engine makes some on purpose, one after the other.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use scoop_runtime::simulation::{Bug, make};

use crate::judge;
use crate::many::threads;
use crate::play;
use crate::scenario::{CHANGING_FROM, Scenario};

/// A mistake has to be found among so many seeds.
const SEEDS_MAX: u64 = 400;

/// Whether mistakes are being made.
static MADE: AtomicBool = AtomicBool::new(false);

/// Whether mistakes are being made.
pub(crate) fn are_made() -> bool {
    MADE.load(Ordering::Relaxed)
}

/// What came of a mistake.
type Found = (Bug, Option<(u64, BTreeSet<String>)>);

/// Makes each mistake until it is found. Says whether all are.
pub(crate) fn find_all() -> bool {
    MADE.store(true, Ordering::Relaxed);
    let (next, found) = (AtomicUsize::new(0), Mutex::<Vec<Found>>::default());
    std::thread::scope(|scope| {
        for _ in 0..threads() {
            scope.spawn(|| {
                while let Some(bug) = Bug::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = find(*bug);
                    found.lock().expect("nobody panics here").push((*bug, result));
                }
            });
        }
    });
    MADE.store(false, Ordering::Relaxed);
    let mut found = found.into_inner().expect("nobody panics here");
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

/// The first seed that finds the mistake, and what is wrong there.
fn find(bug: Bug) -> Option<(u64, BTreeSet<String>)> {
    make(bug);
    let first = if bug.needs_changes() { CHANGING_FROM } else { 0 };
    let found = (0..SEEDS_MAX).find_map(|seed| {
        let scenario = Scenario::of(first + seed);
        let wrong = judge::judge(&scenario, &play::play(&scenario));
        let by: BTreeSet<_> = wrong.into_iter().map(|wrong| wrong.id).collect();
        (!by.is_empty()).then_some((seed, by))
    });
    make(None);
    found
}
