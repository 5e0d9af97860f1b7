//! Golden scripts: sagas, launches, and all rows that they record.
//!
//! Each file in `scripts/` shows one behaviour. The part above `---` is the script (in the language of
//! `driver/parse.rs`), the part below it is the expected record (`driver/notation.rs`). `UPDATE_SCRIPTS=1` in the
//! environment renews the expected part, to be reviewed and committed.
//!
//! `scoop_audit` checks every record, and `broken/` tests that it finds violations. `properties/` checks
//! invariants on random scripts.

mod broken;
mod driver;
mod properties;

use std::fs;
use std::path::{Path, PathBuf};

use driver::{Memory, Script, World, definitions, log, parse, recorded};
use scoop_audit::{Quiescence, audit};
use scoop_core::EventKind;

const SEPARATOR: &str = "---\n";

#[test]
fn scripts_are_recorded_as_written() {
    let update = is_update();
    let mut complaints = vec![];
    for path in files() {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        println!("playing {name}");
        if let Err(complaint) = check(&path, update) {
            complaints.push(format!("{name}: {complaint}"));
        }
    }
    assert!(complaints.is_empty(), "\n\n{}", complaints.join("\n\n"));
}

#[expect(clippy::disallowed_methods, reason = "a switch of the test, not of the protocol")]
fn is_update() -> bool {
    std::env::var("UPDATE_SCRIPTS").is_ok_and(|value| value == "1")
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let entries = fs::read_dir(folder).expect("the folder of the scripts");
    let paths = entries.map(|entry| entry.expect("a script").path());
    let mut paths: Vec<_> = paths.filter(|path| path.extension().is_some_and(|e| e == "txt")).collect();
    paths.sort();
    assert!(!paths.is_empty(), "there are no scripts");
    paths
}

fn check(path: &Path, update: bool) -> Result<(), String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let (source, expected) = match text.split_once(SEPARATOR) {
        Some((source, expected)) => (source, Some(expected)),
        None => (text.as_str(), None),
    };
    let script = parse(source)?;
    let world = World::play(&script, Memory::Kept);
    let actual = recorded(&world);
    judge(&script, &world).map_err(|wrong| format!("{wrong}\n\n{actual}"))?;
    let without_memory = recorded(&World::play(&script, Memory::Lost));
    if actual != without_memory {
        let diff = diff(&actual, &without_memory);
        return Err(format!("an engine without memory between moves records other rows\n{diff}"));
    }
    if update {
        let text = format!("{source}{SEPARATOR}{actual}");
        return fs::write(path, text).map_err(|error| error.to_string());
    }
    match expected {
        None => Err("nothing is recorded; see UPDATE_SCRIPTS at the top of tests/scripts.rs".into()),
        Some(expected) if expected != actual => {
            Err(format!("another record (- in the script, + now)\n{}", diff(expected, &actual)))
        }
        Some(_) => Ok(()),
    }
}

/// Audits the record and every prefix of it.
fn judge(script: &Script, world: &World<'_>) -> Result<(), String> {
    let (mut log, definitions) = (log(script, world), definitions(script));
    let mut at_rest = Quiescence::Yes;
    loop {
        let wrong: Vec<_> = audit(&log, &definitions, at_rest).iter().map(ToString::to_string).collect();
        if !wrong.is_empty() {
            return Err(format!("{at_rest:?} at {} rows: {}", log.events.len(), wrong.join("\n")));
        }
        if log.events.pop().is_none() {
            return Ok(());
        }
        // Emissions and rollback requests of a step come with the suspension after them.
        while log.events.last().is_some_and(|row| is_half(row.kind)) {
            log.events.pop();
        }
        at_rest = Quiescence::No;
    }
}

fn is_half(kind: EventKind) -> bool {
    matches!(kind, EventKind::Emitted | EventKind::RollbackEmitted)
}

/// The lines of both texts, with marks on the lines that only one has.
fn diff(old: &str, new: &str) -> String {
    let (old, new): (Vec<_>, Vec<_>) = (old.lines().collect(), new.lines().collect());
    // common[i][j]: the length of the longest common subsequence of old[i..] and new[j..].
    let mut common = vec![vec![0; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i][j] = if old[i] == new[j] {
                common[i + 1][j + 1] + 1
            } else {
                common[i + 1][j].max(common[i][j + 1])
            };
        }
    }
    let (mut i, mut j, mut text) = (0, 0, String::new());
    while i < old.len() || j < new.len() {
        let (mark, line) = if i < old.len() && j < new.len() && old[i] == new[j] {
            (i, j) = (i + 1, j + 1);
            (' ', old[i - 1])
        } else if j == new.len() || i < old.len() && common[i + 1][j] >= common[i][j + 1] {
            i += 1;
            ('-', old[i - 1])
        } else {
            j += 1;
            ('+', new[j - 1])
        };
        text.push_str(&format!("  {mark} {line}\n"));
    }
    text
}
