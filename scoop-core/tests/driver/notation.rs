//! The notation of rows and calls in scripts.
//!
//! A row: message, type, handler, step; then those of `next`, `as_new`, `cfhi`, `ctx` and `exc` that are not null, and
//! the lineage where it is new. `RB(x)` is `Rollback of x`, `RBC(x)` is `Rollback of x (rolling back
//! child scopes)`. A failure is `Type(message)@saga[causes]`, or `=row k` if row k has it first;
//! `CRB(x)`, `CRF(x)`, `PSS` and `GU` are the protocol's own. A call lists its fields that are not 0 or empty.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use scoop_core::{Context, EventKind, Failure, Lineage};
use uuid::Uuid;

use super::script::Code;
use super::world::{Called, Note, World};

/// All rows, calls and unfinished runs of a world.
pub(crate) fn recorded(world: &World<'_>) -> String {
    let names = Names::of(world);
    let mut text = String::new();
    for index in 0..world.rows.len() {
        text.push_str(&names.row(index));
        text.push('\n');
    }
    text.push('\n');
    for note in &world.notes {
        match note {
            Note::Called(called) => text.push_str(&names.call(called)),
            Note::SetAside { handler, reason } => {
                let _ = write!(text, "set aside {handler}: {reason}");
            }
        }
        text.push('\n');
    }
    for (handler, lineage, set_aside) in world.unfinished() {
        let why = if set_aside { "set aside" } else { "waiting" };
        let _ = writeln!(text, "unfinished {handler} L={} {why}", names.lineage(lineage));
    }
    text
}

/// Short names of ids, in the order in which rows mention them.
struct Names<'a> {
    world: &'a World<'a>,
    messages: BTreeMap<Uuid, usize>,
    lineages: BTreeMap<Uuid, String>,
}

impl<'a> Names<'a> {
    fn of(world: &'a World<'a>) -> Self {
        let mut names = Self { world, messages: BTreeMap::new(), lineages: BTreeMap::new() };
        let (mut roots, mut runs) = (0, 0);
        for row in &world.rows {
            let count = names.messages.len();
            names.messages.entry(row.event.message).or_insert(count);
            for (depth, id) in row.lineage.ids().iter().enumerate() {
                let (count, name): (&mut u32, fn(u32) -> String) = match depth {
                    0 => (&mut roots, root_name),
                    _ => (&mut runs, run_name),
                };
                names.lineages.entry(*id).or_insert_with(|| {
                    *count += 1;
                    name(*count - 1)
                });
            }
        }
        names
    }

    fn row(&self, index: usize) -> String {
        let row = &self.world.rows[index];
        let event = &row.event;
        let handler = row.handler.as_deref().unwrap_or("·");
        let step = event.step.as_ref().map_or("·".to_owned(), |step| self.step(handler, step));
        let kind = event.kind.as_str();
        let mut text = format!("M{} {kind} {handler} {step}", self.messages[&event.message]);
        if let Some(next) = event.next_step {
            let _ = write!(text, " next={next}");
        }
        if event.as_new.is_some() {
            text.push_str(" anew");
        }
        if let Some(iteration) = event.handler_iteration {
            let _ = write!(text, " cfhi={iteration}");
        }
        if row.handler.is_none() || event.kind == EventKind::Seen {
            let _ = write!(text, " L={}", self.lineage(&row.lineage));
        }
        if !event.context.is_empty() {
            let _ = write!(text, " ctx={}", short(&event.context));
        }
        if let Some(failure) = &event.exception {
            let _ = write!(text, " exc={}", self.failure(failure, index));
        }
        text
    }

    fn call(&self, called: &Called) -> String {
        let code = match called.code {
            Code::Invoke => "invoke",
            Code::Undo => "rollback",
            Code::OnChildFailure => "hcf",
            Code::Finally => "finally",
        };
        let step = quoted(&called.step);
        let mut text = format!("{code} {}/{step}", called.handler);
        if called.iteration > 0 {
            let _ = write!(text, " it={}", called.iteration);
        }
        if let Some((iteration, _)) = called.failure {
            let _ = write!(text, " cfhi={iteration}");
        }
        if !called.context.is_empty() {
            let _ = write!(text, " ctx={}", short(&called.context));
        }
        if !called.outputs.is_empty() {
            let outputs = serde_json::to_string(&called.outputs).expect("values are JSON");
            let _ = write!(text, " outputs={outputs}");
        }
        if let Some((_, failure)) = &called.failure {
            let _ = write!(text, " exc={}", self.failure(failure, called.rows_before));
        }
        text
    }

    fn step(&self, handler: &str, step: &str) -> String {
        if self.world.is_own_step(handler, step) {
            return quoted(step);
        }
        let Some(of) = step.strip_prefix("Rollback of ") else {
            return quoted(step);
        };
        match of.strip_suffix(" (rolling back child scopes)") {
            _ if of.starts_with('$') => quoted(step),
            Some(of) => format!("RBC({of})"),
            None if of.contains(' ') => quoted(step),
            None => format!("RB({of})"),
        }
    }

    fn lineage(&self, lineage: &Lineage) -> String {
        let ids = lineage.ids().iter();
        let names: Vec<_> = ids.map(|id| self.lineages.get(id).map_or("?", String::as_str)).collect();
        format!("[{}]", names.join(","))
    }

    /// A failure, or a reference to the first row before `limit` that has it.
    fn failure(&self, failure: &Failure, limit: usize) -> String {
        let mut rows = self.world.rows[..limit].iter();
        if let Some(row) = rows.position(|row| row.event.exception.as_ref() == Some(failure)) {
            return format!("=row {}", row + 1);
        }
        let mut text = format!("{}@{}", kind(failure), saga(failure));
        if !failure.causes.is_empty() {
            let causes = failure.causes.iter();
            let causes: Vec<_> = causes.map(|cause| self.failure(cause, limit)).collect();
            let _ = write!(text, "[{}]", causes.join(","));
        }
        text
    }
}

/// The saga in the source of a failure.
fn saga(failure: &Failure) -> &str {
    failure.source.split('[').next().unwrap_or_default()
}

/// The type and the text of a failure. The protocol's own failures have texts that follow from a step.
fn kind(failure: &Failure) -> String {
    let Failure { kind, message, .. } = failure;
    let (short, before) = match kind.as_str() {
        "ChildRolledBackException" => ("CRB", "Child failure"),
        "ChildRollbackFailedException" => ("CRF", "Child rollback failure"),
        "ParentSaidSoException" => ("PSS", "?"),
        "GaveUpException" => ("GU", "?"),
        _ => return format!("{kind}({message})"),
    };
    let plain = match short {
        "GU" => message.starts_with("gave up: "),
        "PSS" => message.starts_with(&format!("the parent saga `{}` rolls back: ", saga(failure))),
        _ => message == "what it launched has failed as well",
    };
    if plain {
        return short.to_owned();
    }
    let step = message
        .strip_prefix(before)
        .and_then(|rest| rest.strip_prefix(" occurred while suspended in step ["))
        .and_then(|rest| rest.strip_suffix(']'));
    match step {
        None => format!("{short}({message})"),
        Some(step) => match step.strip_prefix("Rollback of ") {
            None => format!("{short}({step})"),
            Some(of) => match of.strip_suffix(" (rolling back child scopes)") {
                Some(of) => format!("{short}(RBC({of}))"),
                None => format!("{short}(RB({of}))"),
            },
        },
    }
}

/// `P=1,Q=2`.
fn short(context: &Context) -> String {
    let elements: Vec<_> = context.iter().map(|(key, text)| format!("{key}={text}")).collect();
    elements.join(",")
}

fn quoted(step: &str) -> String {
    if step.contains(' ') { format!("\"{step}\"") } else { step.to_owned() }
}

fn root_name(index: u32) -> String {
    match index {
        0 => "R".to_owned(),
        _ => format!("R{}", index + 1),
    }
}

fn run_name(index: u32) -> String {
    let letter = char::from_digit(10 + index % 26, 36).expect("26 letters");
    match index / 26 {
        0 => letter.to_string(),
        round => format!("{letter}{round}"),
    }
}
