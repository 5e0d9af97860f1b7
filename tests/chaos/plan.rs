//! The plan of a hierarchy, drawn from the seed: the same number has the same plan in every process.

use scoop::prelude::*;

use crate::dice::Dice;

/// The number of steps of a node that have a plan.
pub(crate) const STEPS: usize = 3;

/// The plan of a run and of its children.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) steps: [StepPlan; STEPS],
    /// How often the compensation of the last step fails before it succeeds.
    pub(crate) clumsy: u32,
    /// Whether the compensation of the first step always fails.
    pub(crate) cannot_be_undone: bool,
}

/// The plan of a step.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct StepPlan {
    /// An effect in the step's own transaction.
    pub(crate) in_database: bool,
    /// An effect outside.
    pub(crate) outside: bool,
    /// How often it is repeated.
    pub(crate) repeats: u32,
    /// How often it fails before it succeeds.
    pub(crate) hiccups: u32,
    pub(crate) end: End,
    pub(crate) children: Vec<Child>,
    /// The reaction to the failure of a child.
    pub(crate) judgement: Judgement,
    pub(crate) sleep_ms: u64,
}

/// The end of a step, in its last iteration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) enum End {
    #[default]
    Well,
    Fails,
    Panics,
    /// With an error that has no text: its `Display` panics.
    FailsUnprintably,
}

/// A child launched by a step.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Child {
    /// One run that may have children of its own.
    Node(Box<Plan>),
    /// Two runs, of two sagas.
    Errand { fails: bool },
    /// Two runs, one of which sends the other one a signal.
    Visit,
    /// A run with a step that runs at most once.
    Wager,
    /// A run of so many executions and one more.
    Laps(u32),
}

/// The reaction to the failure of a child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) enum Judgement {
    /// The step fails with it.
    #[default]
    Fail,
    /// It is ignored.
    Accept,
    /// Another child is launched, which succeeds.
    Replace,
}

/// Requests and limits for the whole hierarchy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fate {
    /// There are none.
    Left,
    /// A worker launches it.
    Wanted,
    /// It is cancelled after a while.
    Cancelled,
    /// Its rollback is requested once it has ended.
    Undone,
    /// It has a deadline after so many milliseconds.
    Hurried(u32),
}

/// The plan and the fate of a hierarchy, by its number.
pub(crate) fn of(seed: u64, number: i64) -> (Plan, Fate) {
    let mut dice = Dice::new(seed, u64::try_from(number).unwrap_or(0) + 1_000);
    let fate = match dice.below(20) {
        0..9 => Fate::Left,
        9..14 => Fate::Wanted,
        14..16 => Fate::Cancelled,
        16..18 => Fate::Undone,
        _ => Fate::Hurried(20 + dice.small(600)),
    };
    (Plan::draw(&mut dice, 2), fate)
}

impl Plan {
    /// A node with so many levels of nodes below it.
    fn draw(dice: &mut Dice, levels: u32) -> Self {
        // Few failures in each node make many in a tree of some dozens.
        let failing = dice.percent(12).then(|| dice.below(STEPS));
        let mut steps: [StepPlan; STEPS] =
            std::array::from_fn(|step| StepPlan::draw(dice, levels, failing == Some(step)));
        // The first step is tidied up after, so it always goes on.
        steps[0].repeats = 0;
        Self { steps, clumsy: dice.small(3), cannot_be_undone: dice.percent(2) }
    }

    /// Whether the run commits without outside interference.
    pub(crate) fn commits(&self) -> bool {
        self.steps.iter().all(StepPlan::goes_well)
    }

    /// Whether any part of it cannot be compensated.
    pub(crate) fn is_risky(&self) -> bool {
        let nodes = self.steps.iter().flat_map(|step| &step.children);
        let risky = |child: &Child| matches!(child, Child::Node(plan) if plan.is_risky());
        self.cannot_be_undone || nodes.into_iter().any(risky)
    }
}

impl StepPlan {
    fn draw(dice: &mut Dice, levels: u32, failing: bool) -> Self {
        let bad_end = match dice.below(10) {
            0..2 => End::Panics,
            2..4 => End::FailsUnprintably,
            _ => End::Fails,
        };
        let children = match dice.below(10) {
            _ if levels == 0 => 0,
            0..6 => 0,
            6..9 => 1,
            _ => 2,
        };
        Self {
            in_database: dice.percent(60),
            outside: dice.percent(30),
            repeats: if dice.percent(15) { 1 + dice.small(2) } else { 0 },
            hiccups: if dice.percent(15) { 1 + dice.small(2) } else { 0 },
            end: if failing { bad_end } else { End::Well },
            children: (0..children).map(|_| Child::draw(dice, levels - 1)).collect(),
            judgement: [Judgement::Fail, Judgement::Accept, Judgement::Replace][dice.below(3)],
            sleep_ms: if dice.percent(10) { 5 + u64::from(dice.small(150)) } else { 0 },
        }
    }

    fn goes_well(&self) -> bool {
        let handled = self.judgement != Judgement::Fail;
        self.end == End::Well && (handled || self.children.iter().all(Child::commits))
    }
}

impl Child {
    fn draw(dice: &mut Dice, levels: u32) -> Self {
        match dice.below(20) {
            0..10 => Child::Node(Box::new(Plan::draw(dice, levels))),
            10..14 => Child::Errand { fails: dice.percent(10) },
            14..16 => Child::Visit,
            16..18 => Child::Wager,
            _ => Child::Laps(dice.small(4)),
        }
    }

    fn commits(&self) -> bool {
        match self {
            Child::Node(plan) => plan.commits(),
            Child::Errand { fails } => !fails,
            // The step that launches a wager accepts an interrupted one.
            Child::Visit | Child::Wager | Child::Laps(_) => true,
        }
    }
}
