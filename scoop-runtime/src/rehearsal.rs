//! The fault injection of rehearsals, which the engine calls at each possible fault.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use scoop_core::{Conclusion, Failure};
use uuid::Uuid;

#[derive(Clone, Debug)]
pub(crate) struct Rehearsal(Arc<Mutex<RehearsalState>>);

#[derive(Debug)]
pub(crate) enum InjectedFault {
    None,
    At(FaultPoint),
    EachTwice,
}

#[derive(Debug)]
struct RehearsalState {
    trouble: InjectedFault,
    faults_injected: usize,
    /// The steps that succeeded, and the commits, in order.
    steps: Vec<FaultPoint>,
    commits: Vec<FaultPoint>,
    runs: HashMap<String, Vec<Uuid>>,
    committed: HashMap<Uuid, usize>,
    /// The commits that were lost already, by run and number.
    lost: HashSet<(Uuid, usize)>,
}

/// A commit that is not lost beforehand.
#[derive(Debug)]
pub(crate) struct CommitToken {
    point: FaultPoint,
    run: Uuid,
}

impl Rehearsal {
    pub(crate) fn new(trouble: InjectedFault) -> Self {
        Self(Arc::new(Mutex::new(RehearsalState {
            trouble,
            faults_injected: 0,
            steps: vec![],
            commits: vec![],
            runs: HashMap::new(),
            committed: HashMap::new(),
            lost: HashSet::new(),
        })))
    }

    /// Called when a step has succeeded. Returns the failure to inject.
    pub(crate) fn fail_after_step(
        &self,
        saga: &str,
        run: Uuid,
        step: &str,
        iteration: u32,
        source: &str,
    ) -> Option<Failure> {
        let mut course = self.course();
        let number = usize::try_from(iteration).unwrap_or(usize::MAX);
        let point = course.point(saga, run, step.to_owned(), number, Fault::Fails);
        let fails = course.fires_at(&point);
        if !course.steps.contains(&point) {
            course.steps.push(point);
        }
        fails.then(|| Failure::new("Rehearsed", format!("step `{step}` fails, as it was to"), source))
    }

    /// Called before a commit. Returns `None` if the process loses the run before it.
    pub(crate) fn before_commit(
        &self,
        saga: &str,
        run: Uuid,
        conclusion: &Conclusion,
    ) -> Option<CommitToken> {
        let mut course = self.course();
        let number = course.committed.get(&run).copied().unwrap_or(0);
        let what = conclusion.events.first().map_or_else(String::new, |event| match &event.step {
            Some(step) => format!("{} {step}", event.kind.as_str()),
            None => event.kind.as_str().to_owned(),
        });
        let point = course.point(saga, run, what, number, Fault::CrashBefore);
        let again = !course.lost.insert((run, number));
        let forgets = !again && (course.fires_at(&point) || course.drops_first_attempt());
        (!forgets).then_some(CommitToken { point, run })
    }

    /// Called after a commit. Returns whether the process loses the run.
    pub(crate) fn after_commit(&self, commit: CommitToken) -> bool {
        let mut course = self.course();
        *course.committed.entry(commit.run).or_default() += 1;
        let after = FaultPoint { fault: Fault::CrashAfter, ..commit.point.clone() };
        let forgets = course.fires_at(&after);
        course.commits.extend([commit.point, after]);
        forgets
    }

    pub(crate) fn faults_injected(&self) -> usize {
        self.course().faults_injected
    }

    pub(crate) fn steps(&self) -> Vec<FaultPoint> {
        self.course().steps.clone()
    }

    pub(crate) fn all_commits(&self) -> Vec<FaultPoint> {
        self.course().commits.clone()
    }

    fn course(&self) -> MutexGuard<'_, RehearsalState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RehearsalState {
    fn point(&mut self, saga: &str, run: Uuid, what: String, number: usize, fault: Fault) -> FaultPoint {
        let runs = self.runs.entry(saga.to_owned()).or_default();
        let at = runs.iter().position(|known| *known == run).unwrap_or_else(|| {
            runs.push(run);
            runs.len() - 1
        });
        FaultPoint { saga: saga.to_owned(), run: at, what, number, fault }
    }

    fn fires_at(&mut self, point: &FaultPoint) -> bool {
        let strikes = matches!(&self.trouble, InjectedFault::At(at) if at == point);
        self.faults_injected += usize::from(strikes);
        strikes
    }

    /// Whether the first execution is lost.
    fn drops_first_attempt(&mut self) -> bool {
        let loses = matches!(self.trouble, InjectedFault::EachTwice);
        self.faults_injected += usize::from(loses);
        loses
    }
}

/// A place in a rehearsal with a possible fault.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaultPoint {
    /// The saga.
    pub saga: String,
    /// The index of the run among those of the saga, from 0, in the order in which they first reached such a place.
    pub run: usize,
    /// The step that fails, or the record next to which the process crashes, such as `SUSPENDED reserve`.
    pub what: String,
    /// The index among several such places of this run, from 0: the iteration of a step, or the number of a record.
    pub number: usize,
    /// The fault at this place.
    pub fault: Fault,
}

/// A fault that a rehearsal injects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A step fails after all its effects.
    Fails,
    /// The process loses a run before its results are committed.
    CrashBefore,
    /// The process loses a run after its results were committed, before the process gets the answer.
    CrashAfter,
}

impl fmt::Display for FaultPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { saga, run, what, number, fault } = self;
        match fault {
            Fault::Fails => write!(f, "step `{what}` of saga `{saga}` fails")?,
            Fault::CrashBefore => write!(f, "crash of saga `{saga}` before `{what}` is recorded")?,
            Fault::CrashAfter => write!(f, "crash of saga `{saga}` after `{what}` was recorded")?,
        }
        write!(f, " (run {run}, number {number})")
    }
}
