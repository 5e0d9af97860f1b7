//! Simulates the engine with the events and faults of a seed, in virtual time, and then checks all invariants.
//!
//! The engine is the real one, with the real protocol under it. The database is the one in memory, which does
//! what the statements in `sql/` do. One seed gives messages, sagas' behaviour, processes, and faults between
//! any two operations. At a certain time the faults end, and every run has to come to its end. The log is
//! append-only, and the reference model (`scoop_audit`) checks the order of all its events, so a
//! violation after any move is found at the end. Other tables change, so it checks them at moments in between, too.
//!
//! ```text
//! cargo test --test sim                                       the fixed seeds
//! cargo test --test sim -- --seed 41                          one seed, with its event table
//! cargo test --test sim -- --scenario '{..}'                  a scenario as it was printed
//! cargo test --release --test sim -- --hierarchies 1000000    a long run: of other seeds with --from, to go on after failures with --failures
//! cargo test --test sim -- --seed 1000000000041               programs change while runs are under way: all seeds from 10^12 on
//! cargo test --test sim -- --small 5000                       so many seeds of each simulation of one feature, --from one of them
//! cargo test --test sim -- --commands                         commands that several processes decide; of other seeds with --from and --seeds
//! ```
//!
//! `bugs.sh` plays the seeds in a copy of the workspace that has deliberate bugs, and each bug has to be found.

mod act;
mod anew;
mod awaiting;
mod changes;
mod commands;
mod crew;
mod dice;
mod joined;
mod judge;
mod limited;
mod link;
mod many;
mod once;
mod play;
mod prioritized;
mod sagas;
mod scenario;
mod shrink;
mod slow;
mod strategies;
mod table;
mod versions;
mod world;

use std::ops::Range;
use std::process::ExitCode;

use crate::anew::CONTINUE_AS_NEW;
use crate::awaiting::AWAITING;
use crate::joined::JOINED;
use crate::limited::LIMITED;
use crate::once::ONCE;
use crate::prioritized::PRIORITIZED;
use crate::scenario::CHANGING_FROM;
use crate::strategies::STRATEGIES;

/// Number of seeds played by default, from 0 on.
const SEEDS: u64 = 1_000;

/// Number of seeds with changing programs played by default.
const CHANGING_SEEDS: u64 = 400;

/// Number of seeds of each simulation of one feature.
const SMALL_SEEDS: u64 = 200;

/// The first seed of long runs, by default.
const LONG_FROM: u64 = 1_000_000;

fn main() -> ExitCode {
    keep_planned_panics_quiet();
    slow::report();
    let args: Vec<_> = std::env::args().skip(1).collect();
    let number = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1)?.parse::<u64>().ok()
    };
    let filter = args.first().filter(|arg| !arg.starts_with("--"));
    if filter.is_some_and(|filter| !"sim".contains(&**filter)) {
        return ExitCode::SUCCESS;
    }
    let scenario = args.iter().position(|arg| arg == "--scenario").and_then(|at| args.get(at + 1));
    if let Some(scenario) = scenario {
        let scenario = serde_json::from_str(scenario).expect("a scenario as it was printed");
        return ended(many::explain_scenario(&scenario));
    }
    if let Some(seed) = number("--seed") {
        return ended(many::explain(seed));
    }
    if let Some(hierarchies) = number("--hierarchies") {
        let from = number("--from").unwrap_or(LONG_FROM);
        return ended(many::play(from..u64::MAX, hierarchies, number("--failures")));
    }
    let seeds = number("--seeds").unwrap_or(SEEDS);
    let changing = CHANGING_FROM..CHANGING_FROM + number("--changing").unwrap_or(CHANGING_SEEDS);
    if let Some(seeds) = number("--small") {
        let from = number("--from").unwrap_or(0);
        return ended(play_small(from..from + seeds));
    }
    if args.iter().any(|arg| arg == "--commands") {
        let from = number("--from").unwrap_or(commands::SEEDS.start);
        return ended(commands::play(
            from..number("--seeds").map_or(commands::SEEDS.end, |seeds| from + seeds),
        ));
    }
    let well = many::repeat_regressions()
        && play_small(0..SMALL_SEEDS)
        && commands::play(commands::SEEDS)
        && many::play(0..seeds, u64::MAX, None);
    ended(well && many::play(changing, u64::MAX, None))
}

/// Plays these seeds of each simulation of one feature.
fn play_small(seeds: Range<u64>) -> bool {
    [&JOINED, &AWAITING, &ONCE, &CONTINUE_AS_NEW, &LIMITED, &PRIORITIZED, &STRATEGIES]
        .into_iter()
        .all(|small| small.play(seeds.clone()))
}

fn ended(well: bool) -> ExitCode {
    let (passed, failed) = (u8::from(well), u8::from(!well));
    println!("\nsim: {passed} passed, {failed} failed");
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Hides the messages of planned panics.
fn keep_planned_panics_quiet() {
    std::panic::set_hook(Box::new(|info| {
        let planned = info.payload_as_str().unwrap_or_default().starts_with(act::PLANNED);
        if !planned {
            eprintln!("{info}");
        }
    }));
}
