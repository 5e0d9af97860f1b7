//! The recorded events as a readable table.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use scoop_audit::{Log, LoggedEvent};
use time::OffsetDateTime;
use uuid::Uuid;

/// The rows of a hierarchy, numbered as the reference model names them; ids by short names, times in ms.
pub(crate) fn table(log: &Log, hierarchy: Option<Uuid>) -> String {
    let begin = log.events.first().map_or(OffsetDateTime::UNIX_EPOCH, |row| row.at);
    let mut names = Names::default();
    let mut text = String::new();
    for (at, row) in log.events.iter().enumerate() {
        if hierarchy.is_some_and(|root| row.lineage.root_id() != root) {
            continue;
        }
        let after = (row.at - begin).as_seconds_f64() * 1_000.0;
        let _ = writeln!(text, "{:>4} {after:>10.3}  {}", at + 1, names.row(row));
    }
    text
}

/// Short names of ids, in the order in which they occur.
#[derive(Default)]
struct Names {
    messages: BTreeMap<Uuid, usize>,
    runs: BTreeMap<Uuid, usize>,
    workers: BTreeMap<String, usize>,
}

impl Names {
    fn row(&mut self, row: &LoggedEvent) -> String {
        let message = name(&mut self.messages, row.message);
        let lineage: Vec<_> =
            row.lineage.ids().iter().map(|id| name(&mut self.runs, *id).to_string()).collect();
        let worker = row
            .identifier
            .clone()
            .map_or(String::new(), |worker| format!(" by {}", name(&mut self.workers, worker)));
        let or = |text: &Option<String>| text.clone().unwrap_or_else(|| "·".into());
        let mut text = format!(
            "M{message} {} {} {} [{}]",
            row.kind.as_str(),
            or(&row.handler),
            or(&row.step),
            lineage.join(",")
        );
        if let Some(next) = row.next_step {
            let _ = write!(text, " next={next}");
        }
        if let Some(handling) = row.handler_iteration {
            let _ = write!(text, " cfhi={handling}");
        }
        text += &worker;
        if let Some(failure) = &row.exception {
            let origins: Vec<_> = failure.root_causes().iter().map(|origin| origin.message.clone()).collect();
            let _ = write!(text, " {} <- {}", failure.kind, origins.join("; "));
        }
        text
    }
}

fn name<K: Ord>(names: &mut BTreeMap<K, usize>, key: K) -> usize {
    let next = names.len();
    *names.entry(key).or_insert(next)
}
