//! The calls of user code, in the notation of `docs/reference/conformance.md`.
//!
//! Steps report their calls by [`invoked`], [`compensated`] and [`handled`]. The reports are kept
//! by hierarchy, so that sagas need no field for them.

use std::collections::HashMap;
use std::fmt;
use std::sync::{LazyLock, Mutex};

use scoop::{Handle, Scope};
use uuid::Uuid;

use crate::rows::diff;

static CALLS: LazyLock<Mutex<HashMap<Uuid, Vec<Call>>>> = LazyLock::new(Mutex::default);

/// One call of user code.
#[derive(Clone, Debug, PartialEq)]
struct Call {
    kind: &'static str,
    handler: String,
    step: String,
    iteration: u32,
    /// How often the handler was called before, if this is a child failure handler.
    handler_iteration: Option<u32>,
}

/// The calls of one hierarchy, in order.
pub struct Calls(Vec<Call>);

/// Records the call of a step. Returns the number of its earlier calls in this hierarchy.
pub fn invoked(scope: &Scope<'_>) -> usize {
    record("invoke", scope)
}

/// Records the call of a compensation. Returns the number of its earlier calls.
pub fn compensated(scope: &Scope<'_>) -> usize {
    record("rollback", scope)
}

/// Records the call of a child failure handler. Returns the number of its earlier calls.
pub fn handled(scope: &Scope<'_>) -> usize {
    record("hcf", scope)
}

fn record(kind: &'static str, scope: &Scope<'_>) -> usize {
    let call = Call {
        kind,
        handler: scope.handler().into(),
        step: undone(scope.step()).into(),
        iteration: scope.iteration(),
        handler_iteration: (kind == "hcf").then(|| scope.handler_iteration()),
    };
    let mut calls = CALLS.lock().expect("no test fails in here");
    let calls = calls.entry(scope.lineage().root_id()).or_default();
    let same = |other: &&Call| (other.kind, &other.handler, &other.step) == (kind, &call.handler, &call.step);
    let before = calls.iter().filter(same).count();
    calls.push(call);
    before
}

/// The step's own name, if this is that of a part of a rollback.
fn undone(step: &str) -> &str {
    let own = step.strip_prefix("Rollback of ").and_then(|rest| rest.rsplit_once('['));
    own.map_or(step, |(own, _)| own)
}

/// The calls in this hierarchy until now.
pub fn calls_of(root: &Handle) -> Calls {
    let calls = CALLS.lock().expect("no test fails in here");
    Calls(calls.get(&root.id().uuid()).cloned().unwrap_or_default())
}

impl Calls {
    /// How many there were.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The calls of these handlers.
    pub fn of(&self, handlers: &[&str]) -> Calls {
        let calls = self.0.iter().filter(|call| handlers.contains(&&*call.handler));
        Calls(calls.cloned().collect())
    }

    /// Fails if these are not the calls of the block. `it` and `cfhi` are 0 where
    /// they are not mentioned. `next` is ignored: child failure handlers do not get it here.
    #[track_caller]
    pub fn expect(&self, block: &str) {
        let expected: Vec<_> =
            block.lines().map(str::trim).filter(|line| !line.is_empty()).map(observable).collect();
        let actual: Vec<_> = self.0.iter().map(Call::to_string).collect();
        if expected != actual {
            panic!("other calls than expected (-), but these (+):\n{}", diff(&expected, &actual));
        }
    }
}

fn observable(line: &str) -> String {
    let known = line
        .split_whitespace()
        .filter(|word| !word.starts_with("next=") && !["it=0", "cfhi=0"].contains(word));
    known.collect::<Vec<_>>().join(" ")
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.handler, self.step)?;
        if self.iteration > 0 {
            write!(f, " it={}", self.iteration)?;
        }
        if let Some(iteration @ 1..) = self.handler_iteration {
            write!(f, " cfhi={iteration}")?;
        }
        Ok(())
    }
}
