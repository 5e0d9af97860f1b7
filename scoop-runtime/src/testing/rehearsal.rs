//! The fault injection of rehearsals, which the engine calls at each possible fault.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use scoop_core::{Conclusion, Failure};
use uuid::Uuid;

use super::{Fault, Place};

/// One run of a rehearsal. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Rehearsal(Arc<Mutex<Course>>);

/// The faults in one run of a rehearsal.
#[derive(Debug)]
pub(super) enum Trouble {
    None,
    At(Place),
    EachTwice,
}

#[derive(Debug)]
struct Course {
    trouble: Trouble,
    /// The number of injected faults.
    struck: usize,
    /// The steps that succeeded, and the commits, in order.
    steps: Vec<Place>,
    commits: Vec<Place>,
    /// The runs of each saga.
    runs: HashMap<String, Vec<Uuid>>,
    /// The number of commits of each run.
    committed: HashMap<Uuid, usize>,
    /// The commits that were lost already, by run and number.
    lost: HashSet<(Uuid, usize)>,
}

/// A commit that is not lost beforehand.
#[derive(Debug)]
pub(crate) struct Commit {
    place: Place,
    run: Uuid,
}

impl Rehearsal {
    pub(super) fn new(trouble: Trouble) -> Self {
        Self(Arc::new(Mutex::new(Course {
            trouble,
            struck: 0,
            steps: vec![],
            commits: vec![],
            runs: HashMap::new(),
            committed: HashMap::new(),
            lost: HashSet::new(),
        })))
    }

    /// Called when a step has succeeded. Returns the failure to inject.
    pub(crate) fn fails(
        &self,
        saga: &str,
        run: Uuid,
        step: &str,
        iteration: u32,
        source: &str,
    ) -> Option<Failure> {
        let mut course = self.course();
        let number = usize::try_from(iteration).unwrap_or(usize::MAX);
        let place = course.place(saga, run, step.to_owned(), number, Fault::Fails);
        let fails = course.strikes(&place);
        if !course.steps.contains(&place) {
            course.steps.push(place);
        }
        fails.then(|| Failure::new("Rehearsed", format!("step `{step}` fails, as it was to"), source))
    }

    /// Called before a commit. Returns `None` if the process loses the run before it.
    pub(crate) fn commits(&self, saga: &str, run: Uuid, conclusion: &Conclusion) -> Option<Commit> {
        let mut course = self.course();
        let number = course.committed.get(&run).copied().unwrap_or(0);
        let what = conclusion.events.first().map_or_else(String::new, |event| match &event.step {
            Some(step) => format!("{} {step}", event.kind.as_str()),
            None => event.kind.as_str().to_owned(),
        });
        let place = course.place(saga, run, what, number, Fault::CrashBefore);
        let again = !course.lost.insert((run, number));
        let forgets = !again && (course.strikes(&place) || course.loses());
        (!forgets).then_some(Commit { place, run })
    }

    /// Called after a commit. Returns whether the process loses the run.
    pub(crate) fn committed(&self, commit: Commit) -> bool {
        let mut course = self.course();
        *course.committed.entry(commit.run).or_default() += 1;
        let after = Place { fault: Fault::CrashAfter, ..commit.place.clone() };
        let forgets = course.strikes(&after);
        course.commits.extend([commit.place, after]);
        forgets
    }

    /// The number of injected faults.
    pub(super) fn struck(&self) -> usize {
        self.course().struck
    }

    pub(super) fn steps(&self) -> Vec<Place> {
        self.course().steps.clone()
    }

    pub(super) fn all_commits(&self) -> Vec<Place> {
        self.course().commits.clone()
    }

    fn course(&self) -> MutexGuard<'_, Course> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Course {
    fn place(&mut self, saga: &str, run: Uuid, what: String, number: usize, fault: Fault) -> Place {
        let runs = self.runs.entry(saga.to_owned()).or_default();
        let at = runs.iter().position(|known| *known == run).unwrap_or_else(|| {
            runs.push(run);
            runs.len() - 1
        });
        Place { saga: saga.to_owned(), run: at, what, number, fault }
    }

    /// Whether a fault is injected at this place.
    fn strikes(&mut self, place: &Place) -> bool {
        let strikes = matches!(&self.trouble, Trouble::At(at) if at == place);
        self.struck += usize::from(strikes);
        strikes
    }

    /// Whether the first execution is lost.
    fn loses(&mut self) -> bool {
        let loses = matches!(self.trouble, Trouble::EachTwice);
        self.struck += usize::from(loses);
        loses
    }
}
