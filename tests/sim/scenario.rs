//! The events of a simulation as plain data, which can be printed, repeated, and made smaller.

use serde::{Deserialize, Serialize};

use crate::dice::Dice;

/// Everything that one simulation does, except the ids and the delays that follow from its seed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    /// The messages launched from outside.
    pub(crate) launches: Vec<Launched>,
    /// The requests from outside.
    pub(crate) requests: Vec<Asked>,
    pub(crate) processes: Vec<Process>,
    /// When the working set is compared with the recorded events, in ms.
    pub(crate) looks: Vec<u32>,
    /// When all faults end, in ms. Then every run that has begun must come to its end.
    pub(crate) heals_at: u32,
    /// What operators do then about failed rollbacks. In the end they resolve the others, unless this is empty.
    pub(crate) repairs: Vec<Repair>,
}

/// The repair of the n-th failed rollback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Repair {
    Retry(u32),
    Skip(u32),
    Resolve(u32),
}

/// A message that is launched from outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Launched {
    pub(crate) at: u32,
    pub(crate) emit: Emit,
}

/// A request from outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub(crate) at: u32,
    pub(crate) what: Ask,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Cancels the n-th launch.
    Cancel(u32),
    /// Cancels a run of it: the n-th that began.
    CancelRun(u32, u32),
    /// Requests the rollback of the n-th launch.
    Undo(u32),
    /// Puts the clock of the database forward by so many ms.
    Advance(u32),
}

/// A message: its topic, and what its handlers do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Emit {
    /// 0 to 3: the number of the topic.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) topic: u8,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) detached: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) delay: u32,
    /// Deadlines for the forward path, the rollback and both, in ms; 0 is none.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) deadlines: [u32; 3],
    /// The script of each handler, in the order of [`HANDLERS`].
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) scripts: Vec<Script>,
}

/// The sagas, each with its topic and how many steps it has.
pub(crate) const HANDLERS: [(&str, u8, usize); 6] =
    [("alpha", 0, 3), ("beta", 1, 2), ("gamma", 1, 2), ("delta", 2, 2), ("zeta", 2, 1), ("epsilon", 3, 1)];

/// The number of steps, in all versions together, of a saga that has versions.
const VERSIONED_STEPS: usize = 6;

/// The behaviour of a handler for a message, step by step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Script {
    pub(crate) steps: Vec<Step>,
}

/// The behaviour of a step's code. The n-th turn is that of the n-th iteration. The last turn also serves all
/// later iterations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Step {
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) turns: Vec<Turn>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) undo: Turn,
    /// In calls beyond these it rethrows.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) on_child_failure: Vec<Turn>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) finally: Turn,
}

/// The behaviour of one call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Turn {
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) emits: Vec<Emit>,
    /// The delay of the next step, in ms.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) sleeps: u32,
    /// The duration of the code, in ms.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) takes: u32,
    /// The number of attempts that fail before one may succeed.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) fails_first: u8,
    /// Whether it replies to the launcher of the message.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) replies: bool,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) end: End,
}

/// The end of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum End {
    #[default]
    Well,
    /// Another iteration, if there is a turn for it.
    Repeat,
    /// A jump. A run has two at most.
    Jump(u8),
    Fail,
    FailCoded,
    Panic,
    /// The failure of the children.
    Rethrow,
}

/// A process of a simulation, through its lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) lives: Vec<Life>,
}

/// The version of each saga that changes in a program, `alpha` and `beta`. 0 is the original one.
pub(crate) type Versions = [u8; 2];

/// The number of versions of `alpha` and `beta`.
pub(crate) const VERSIONS: [u8; 2] = [13, 4];

/// A life of a process, from a start to an end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Life {
    /// The time since the end of the last life, in ms.
    pub(crate) after: u32,
    /// Its sagas: one bit for each of [`HANDLERS`].
    pub(crate) handlers: u8,
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) versions: Versions,
    pub(crate) concurrency: u8,
    /// The time until it is shut down, in ms; 0 is never.
    pub(crate) stops: u32,
    /// The longest duration of an operation, in µs.
    pub(crate) latency: u32,
    /// The percentages of notifications that are lost, come late, or come twice.
    pub(crate) notices: [u8; 3],
    pub(crate) faults: Vec<Fault>,
}

/// A fault of the n-th operation of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fault {
    pub(crate) operation: u32,
    pub(crate) what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum What {
    /// It takes so many ms until the operation is carried out.
    Delay(u32),
    /// It is carried out, but its answer takes so many ms.
    DelayAnswer(u32),
    /// It is not carried out.
    Fail,
    /// It is carried out, but the answer is lost.
    LoseAnswer,
    /// The process dies before it. The loss of its session is found so many ms later.
    Crash(u32),
    /// The process dies after it, otherwise like `Crash`.
    CrashAfter(u32),
    /// The session of the process is lost, so other processes presume it dead.
    Cut,
}

impl What {
    /// A short name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Delay(_) => "delayed",
            Self::DelayAnswer(_) => "answered late",
            Self::Fail => "failed",
            Self::LoseAnswer => "answers lost",
            Self::Crash(_) => "crashes before",
            Self::CrashAfter(_) => "crashes after",
            Self::Cut => "sessions cut",
        }
    }
}

/// Whether the value can be left out, because scripts travel with messages.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// From this seed on programs change while runs are under way. Smaller seeds keep the scenarios that they had
/// before programs could change.
pub(crate) const CHANGING_FROM: u64 = 1_000_000_000_000;

/// All sagas.
pub(crate) const ALL: u8 = (1 << HANDLERS.len()) - 1;

impl Scenario {
    /// The scenario of this seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let calm = dice.percent(15);
        let heals_at = dice.between(400, 4_000);
        let launches: Vec<_> = (0..dice.between(1, 6))
            .map(|_| Launched { at: dice.mostly_below(1_500), emit: root(&mut dice) })
            .collect();
        let count = u32::try_from(launches.len()).unwrap_or(1);
        let requests = if dice.percent(45) { dice.between(1, 3) } else { 0 };
        let requests = (0..requests).map(|_| asked(&mut dice, count)).collect();
        let processes = (0..dice.between(1, 3)).map(|nth| process(&mut dice, nth, calm)).collect();
        let looks = (0..dice.between(1, 3)).map(|_| dice.below(heals_at)).collect();
        let repairs = if dice.percent(60) { dice.between(1, 4) } else { 0 };
        let repairs = (0..repairs).map(|_| repair(&mut dice)).collect();
        let mut scenario = Self { seed, launches, requests, processes, looks, heals_at, repairs };
        if seed >= CHANGING_FROM {
            scenario.change_programs();
        }
        scenario
    }

    /// More processes, each life with one of a few versions of the sagas. Drawn from dice of its own.
    fn change_programs(&mut self) {
        let mut dice = Dice::new(self.seed ^ 0xe703_7ed1_a0b4_28db);
        let first = u32::try_from(self.processes.len()).unwrap_or(1);
        self.processes.extend((0..dice.between(1, 3)).map(|nth| process(&mut dice, first + nth, false)));
        let version =
            |dice: &mut Dice| VERSIONS.map(|count| u8::try_from(dice.below(count.into())).unwrap_or(0));
        let versions: Vec<_> = (0..dice.between(2, 4)).map(|_| version(&mut dice)).collect();
        let count = u32::try_from(versions.len()).unwrap_or(1);
        for life in self.processes.iter_mut().flat_map(|process| &mut process.lives) {
            life.versions = versions[dice.below(count) as usize];
            if life.stops == 0 && dice.percent(40) {
                life.stops = dice.between(50, 2_000);
            }
            if dice.percent(50) {
                life.handlers = ALL;
            }
        }
        let steps = VERSIONED_STEPS;
        for launched in &mut self.launches {
            lengthen(&mut dice, &mut launched.emit, steps);
        }
    }

    /// The versions of the sagas that occur, in the order in which processes with them start in the end, once the
    /// faults are over.
    pub(crate) fn versions(&self) -> Vec<Versions> {
        let lives = self.processes.iter().flat_map(|process| &process.lives);
        let mut versions: Vec<_> = lives.map(|life| life.versions).collect();
        versions.sort_unstable();
        versions.dedup();
        let count = versions.len().max(1) as u64;
        versions.rotate_left(usize::try_from(self.seed % count).unwrap_or(0));
        versions
    }

    /// Whether programs have different versions of the sagas.
    pub(crate) fn changes(&self) -> bool {
        self.versions().into_iter().any(|versions| versions != [0; 2])
    }
}

/// Gives the scripts of sagas with versions a part for each step of some version.
fn lengthen(dice: &mut Dice, emit: &mut Emit, steps: usize) {
    if emit.topic > 1 {
        return;
    }
    let mut budget = dice.between(2, 8);
    if let Some(changing) = emit.scripts.first_mut() {
        let added = script(dice, emit.topic, steps.saturating_sub(changing.steps.len()), &mut budget);
        changing.steps.extend(added.steps);
        for turn in changing.steps.iter_mut().flat_map(|step| &mut step.turns) {
            // A run without a pause is not affected by a change.
            if turn.takes == 0 && dice.percent(30) {
                turn.takes = dice.below(300);
            }
            if matches!(turn.end, End::Jump(_)) && dice.percent(70) {
                turn.end = End::Well;
            }
            for emit in &mut turn.emits {
                lengthen(dice, emit, steps);
            }
        }
    }
}

fn root(dice: &mut Dice) -> Emit {
    let topic = if dice.percent(70) { 0 } else { u8::try_from(dice.between(1, 3)).unwrap_or(1) };
    let mut budget = dice.between(2, 14);
    emit(dice, topic, &mut budget)
}

fn emit(dice: &mut Dice, topic: u8, budget: &mut u32) -> Emit {
    let delay = if dice.percent(8) { dice.mostly_below(3_000) } else { 0 };
    let mut deadlines = [0; 3];
    if dice.percent(6) {
        deadlines[dice.below(3) as usize] = dice.between(1, 2_000);
    }
    let of_topic = HANDLERS.iter().filter(|(_, of, _)| *of == topic);
    let scripts = of_topic.map(|(_, _, steps)| script(dice, topic, *steps, budget)).collect();
    Emit { topic, detached: dice.percent(8), delay, deadlines, scripts }
}

fn script(dice: &mut Dice, topic: u8, steps: usize, budget: &mut u32) -> Script {
    let step = |_| Step {
        turns: (0..if dice.percent(15) { dice.between(2, 3) } else { 1 })
            .map(|_| turn(dice, topic, budget, 12))
            .collect(),
        undo: if dice.percent(70) { Turn::default() } else { turn(dice, topic, budget, 12) },
        on_child_failure: match dice.below(3) {
            0 => vec![],
            _ => (0..dice.between(1, 2)).map(|_| handling(dice, topic, budget)).collect(),
        },
        finally: if dice.percent(70) { Turn::default() } else { turn(dice, topic, budget, 6) },
    };
    Script { steps: (0..steps).map(step).collect() }
}

fn turn(dice: &mut Dice, topic: u8, budget: &mut u32, fails: u32) -> Turn {
    let mut turn = Turn::default();
    while topic < 3 && *budget > 0 && turn.emits.len() < 4 && dice.percent(45) {
        *budget -= 1;
        let below = u8::try_from(dice.between(u32::from(topic) + 1, 3)).unwrap_or(3);
        turn.emits.push(emit(dice, below, budget));
    }
    turn.sleeps = if dice.percent(6) { dice.mostly_below(2_000) } else { 0 };
    turn.takes = if dice.percent(25) { dice.mostly_below(400) } else { 0 };
    turn.fails_first = if dice.percent(8) { u8::try_from(dice.between(1, 2)).unwrap_or(1) } else { 0 };
    turn.replies = dice.percent(30);
    let fails = dice.percent(fails);
    turn.end = match dice.below(10) {
        0..=5 if fails => End::Fail,
        6..=7 if fails => End::FailCoded,
        _ if fails => End::Panic,
        0..=1 => End::Repeat,
        2 if dice.percent(50) => End::Jump(u8::try_from(dice.below(3)).unwrap_or(0)),
        _ => End::Well,
    };
    turn
}

/// The behaviour of a child failure handler: it swallows, has the step repeated, emits anew, or fails.
fn handling(dice: &mut Dice, topic: u8, budget: &mut u32) -> Turn {
    let mut turn = turn(dice, topic, budget, 0);
    if dice.percent(60) {
        turn.emits.clear();
    }
    turn.sleeps = 0;
    turn.end = match dice.below(8) {
        0..=2 => End::Well,
        3 => End::Repeat,
        4 => End::Jump(u8::try_from(dice.below(3)).unwrap_or(0)),
        5 => End::Fail,
        _ => End::Rethrow,
    };
    turn
}

fn asked(dice: &mut Dice, launches: u32) -> Asked {
    let which = dice.below(launches);
    let what = match dice.below(10) {
        0..=3 => Ask::Cancel(which),
        4..=5 => Ask::CancelRun(which, dice.below(5)),
        6..=8 => Ask::Undo(which),
        _ => Ask::Advance(dice.mostly_below(5_000)),
    };
    Asked { at: dice.below(3_500), what }
}

fn repair(dice: &mut Dice) -> Repair {
    let nth = dice.below(4);
    match dice.below(3) {
        0 => Repair::Retry(nth),
        1 => Repair::Skip(nth),
        _ => Repair::Resolve(nth),
    }
}

fn process(dice: &mut Dice, nth: u32, calm: bool) -> Process {
    let lives = if calm { 1 } else { dice.between(1, 3) };
    Process { lives: (0..lives).map(|life| self::life(dice, nth, life, calm)).collect() }
}

fn life(dice: &mut Dice, nth: u32, life: u32, calm: bool) -> Life {
    let handlers =
        if dice.percent(60) { ALL } else { u8::try_from(dice.below(u32::from(ALL) + 1)).unwrap_or(ALL) };
    let faults = if calm || dice.percent(15) { 0 } else { dice.between(1, 8) };
    let reach = if dice.percent(50) { 40 } else { 200 };
    let faults = (0..faults).map(|_| Fault { operation: dice.below(reach), what: what(dice) });
    let faults: Vec<_> = faults.collect();
    let mut notice = || if calm || dice.percent(60) { 0 } else { u8::try_from(dice.below(100)).unwrap_or(0) };
    let notices = [notice(), notice(), notice()];
    Life {
        after: if nth + life == 0 { 0 } else { dice.mostly_below(1_500) },
        handlers,
        versions: [0; 2],
        concurrency: u8::try_from(dice.between(1, 8)).unwrap_or(4),
        stops: if life > 0 || dice.percent(80) { 0 } else { dice.between(1, 2_000) },
        latency: if dice.percent(30) { 0 } else { dice.mostly_below(20_000) },
        notices,
        faults,
    }
}

fn what(dice: &mut Dice) -> What {
    match dice.below(16) {
        0..=1 => What::Delay(dice.mostly_below(1_500)),
        2..=4 => What::DelayAnswer(dice.mostly_below(1_500)),
        5..=6 => What::Fail,
        7..=9 => What::LoseAnswer,
        10..=11 => What::Crash(dice.mostly_below(1_000)),
        12..=13 => What::CrashAfter(dice.mostly_below(1_000)),
        _ => What::Cut,
    }
}
