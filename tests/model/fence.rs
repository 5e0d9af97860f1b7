//! A run whose owner dies, is presumed dead, or loses answers; and which settlements apply.
//!
//! Statements under way run in the server independently of their sender: on a lost connection they are carried out
//! later, or never. A claim, and a launch that claims (`run_claim.sql`, `message_insert_claiming.sql`,
//! `message_insert_one_claiming.sql`), first locks its worker row and commits later. Reaping a worker
//! (`worker_reap.sql`) and pausing one's own claims (`worker_wait_for_claims.sql`) wait for that lock. A settlement
//! looks at the row of the run after locking it.

use crate::check::{COMES_TO_REST, Model, holds, violates};

const EFFECTS_ONCE: &str = "the effects of a step are committed once (I10)";
const NOTHING_LOST: &str = "a run that has ended has done all its steps (I6)";
const NOT_ROBBED: &str = "no process releases its own run while it executes it";

/// Faults in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// A settlement does not compare the epoch it was made under.
    SettlesUnderAnyEpoch,
    /// A settlement does not raise the epoch.
    SettlesWithoutRaising,
    /// A settlement applies to a run that was released.
    SettlesWhatIsFree,
    /// A claim does not lock the row of its worker.
    ClaimsWithoutLock,
    /// One snapshot serves to remove a dead worker and to release its runs.
    FreesFromOldSnapshot,
    /// The runs in flight are read before claims are paused.
    AsksBeforeThePause,
    /// A launch counts as in flight only once it has answered.
    LaunchesUnexpected,
    /// A process that lost an answer does not reconcile.
    NoDisown,
    /// An unregistered worker reconciles, though it cannot hold off claims made after it re-registers.
    DisownsUnlisted,
    /// A run that returns for its rollback begins with its forward epochs.
    ComesBackFromZero,
}

/// The size of the model.
struct Fence {
    processes: usize,
    /// How many deaths, lost sessions and lost connections may happen.
    faults: u8,
    /// Whether a rollback of the run is requested when it has ended.
    comes_back: bool,
    fault: Option<Fault>,
}

/// The steps of the run. The last one is its compensation.
const STEPS: usize = 3;

/// Higher than any forward epoch.
const COMES_BACK_UNDER: u8 = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Standing {
    Unlaunched,
    Ready,
    /// `None`: a settlement applied to a released run, which only a fault allows.
    Running(Option<usize>),
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Listed {
    Yes,
    /// A reaper is removing the worker and releasing its runs. `seen_to_own`: its snapshot showed the run as
    /// owned.
    Leaving {
        seen_to_own: bool,
    },
    No,
}

/// The task that claims, and reconciles the runs of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Claimer {
    Idle,
    Claiming,
    /// Claims are held off, if the worker is registered.
    Pausing {
        holds: bool,
    },
    /// Whether the run is in flight has been read.
    Disowning {
        in_flight: bool,
        holds: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Statement {
    Claim,
    /// The worker row is locked, or found missing.
    CheckedClaim {
        listed: bool,
    },
    Launch,
    CheckedLaunch {
        listed: bool,
    },
    /// It is committed, and its answer is under way.
    Launched {
        epoch: u8,
        claimed: bool,
    },
    Settle {
        epoch: u8,
        step: usize,
    },
}

/// A statement that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Sent {
    statement: Statement,
    by: usize,
    /// Whether the sender still waits for the answer.
    heard: bool,
}

/// A run that a process executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Job {
    epoch: u8,
    step: usize,
    settles: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Process {
    alive: bool,
    /// It holds its session lock.
    has_session: bool,
    listed: Listed,
    claimer: Claimer,
    in_doubt: bool,
    /// A launch is under way, with its run registered as in flight.
    expects: bool,
    jobs: Vec<Job>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    run: Standing,
    epoch: u8,
    next: usize,
    /// How often the effects of each step were committed.
    effects: [u8; STEPS],
    launched: bool,
    requested: bool,
    robbed: bool,
    processes: Vec<Process>,
    sent: Vec<Sent>,
    faults: u8,
    /// How many reconciliations without a known lost answer may still happen.
    looks: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Launches,
    Claims(usize),
    Settles(usize, Job),
    Locks(Sent),
    Carries(Sent),
    CarriesUnheard(Sent),
    Vanishes(Sent),
    LosesConnection { sent: Sent, tries_again: bool },
    Pauses(usize),
    AsksWhatIsInFlight(usize),
    Disowns(usize),
    Tells,
    Dies(usize),
    LosesSession(usize),
    Renews(usize),
    StrikesOut(usize),
    Frees(usize),
}

type Moves = Vec<(Move, State)>;

impl State {
    fn change(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut next = self.clone();
        change(&mut next);
        next.sent.sort_unstable();
        next.processes.iter_mut().for_each(|process| process.jobs.sort_unstable());
        next
    }

    fn fail(&self, change: impl FnOnce(&mut Self)) -> Self {
        self.change(|next| {
            next.faults -= 1;
            change(next);
        })
    }

    fn is_owned_by(&self, process: usize) -> bool {
        self.run == Standing::Running(Some(process))
    }

    /// Whether a claim of this process has locked the worker row and is not committed.
    fn holds_its_row(&self, process: usize) -> bool {
        self.sent.iter().any(|sent| {
            let checked =
                matches!(sent.statement, Statement::CheckedClaim { .. } | Statement::CheckedLaunch { .. });
            checked && sent.by == process
        })
    }

    fn is_in_flight(&self, process: usize, fault: Option<Fault>) -> bool {
        let here = &self.processes[process];
        here.expects && fault != Some(Fault::LaunchesUnexpected) || !here.jobs.is_empty()
    }

    /// Whether the process executes the run that it owns, or is about to receive it.
    fn is_worked_on_by(&self, process: usize) -> bool {
        let launched = Statement::Launched { epoch: self.epoch, claimed: true };
        self.processes[process].jobs.iter().any(|job| job.epoch == self.epoch)
            || self.sent.contains(&Sent { statement: launched, by: process, heard: true })
    }

    fn take(&mut self, sent: Sent) {
        let at = self.sent.iter().position(|other| *other == sent).expect("it is under way");
        self.sent.swap_remove(at);
    }

    fn free(&mut self) {
        self.run = Standing::Ready;
    }

    /// An answer says whether the run was claimed.
    fn hear_of_claim(&mut self, by: usize, claimed: bool) {
        let job = Job { epoch: self.epoch, step: self.next, settles: false };
        self.processes[by].jobs.extend(claimed.then_some(job));
    }
}

impl Fence {
    /// Moves that a process makes on its own.
    fn work(&self, state: &State, process: usize, moves: &mut Moves) {
        let here = &state.processes[process];
        if here.claimer == Claimer::Idle && !here.in_doubt && state.run == Standing::Ready {
            let claims = state.change(|next| {
                next.processes[process].claimer = Claimer::Claiming;
                next.sent.push(Sent { statement: Statement::Claim, by: process, heard: true });
            });
            moves.push((Move::Claims(process), claims));
        }
        for (at, job) in here.jobs.iter().enumerate().filter(|(_, job)| !job.settles) {
            let settles = state.change(|next| {
                next.processes[process].jobs[at].settles = true;
                let statement = Statement::Settle { epoch: job.epoch, step: job.step };
                next.sent.push(Sent { statement, by: process, heard: true });
            });
            moves.push((Move::Settles(process, *job), settles));
        }
        self.disown(state, process, moves);
    }

    /// Reconciles: releases a run that the process owns in the database but does not execute.
    fn disown(&self, state: &State, process: usize, moves: &mut Moves) {
        let here = &state.processes[process];
        let finds = state.is_owned_by(process) && !state.is_in_flight(process, self.fault);
        let has_reason = here.in_doubt || finds;
        let idle = here.claimer == Claimer::Idle;
        let paused = !state.holds_its_row(process) && !matches!(here.listed, Listed::Leaving { .. });
        let asks_first = self.fault == Some(Fault::AsksBeforeThePause);
        let in_flight = state.is_in_flight(process, self.fault);
        if idle && (has_reason || state.looks > 0) && (paused || asks_first) {
            let pauses = state.change(|next| {
                next.looks -= u8::from(!has_reason);
                next.processes[process].in_doubt = false;
                next.processes[process].claimer = match here.listed == Listed::Yes {
                    _ if asks_first => Claimer::Disowning { in_flight, holds: false },
                    // The reaper has already released the runs of this worker.
                    false if self.fault != Some(Fault::DisownsUnlisted) => Claimer::Idle,
                    holds => Claimer::Pausing { holds },
                };
            });
            moves.push((Move::Pauses(process), pauses));
        }
        if let Claimer::Pausing { holds } = here.claimer {
            let asks = state
                .change(|next| next.processes[process].claimer = Claimer::Disowning { in_flight, holds });
            moves.push((Move::AsksWhatIsInFlight(process), asks));
        }
        if let Claimer::Disowning { in_flight, .. } = here.claimer
            && (paused || !asks_first)
        {
            let disowns = state.change(|next| {
                next.processes[process].claimer = Claimer::Idle;
                let frees = !in_flight && next.is_owned_by(process);
                if frees && self.fault != Some(Fault::NoDisown) {
                    next.robbed |= next.is_worked_on_by(process);
                    next.free();
                }
            });
            moves.push((Move::Disowns(process), disowns));
        }
    }

    /// Moves of a statement in the server.
    fn serve(&self, state: &State, sent: Sent, moves: &mut Moves) {
        let by = &state.processes[sent.by];
        match sent.statement {
            Statement::Claim | Statement::Launch => {
                // Both wait for an exclusive lock on the worker row.
                if !by.holds_its_row() && !matches!(by.listed, Listed::Leaving { .. }) {
                    let listed = by.listed == Listed::Yes;
                    let statement = match sent.statement {
                        Statement::Claim => Statement::CheckedClaim { listed },
                        _ => Statement::CheckedLaunch { listed },
                    };
                    let locks = state.change(|next| {
                        next.take(sent);
                        next.sent.push(Sent { statement, ..sent });
                    });
                    moves.push((Move::Locks(sent), locks));
                }
            }
            _ => {
                moves.push((Move::Carries(sent), self.carry_out(state, sent, sent.heard)));
                let is_an_answer = matches!(sent.statement, Statement::Launched { .. });
                if sent.heard && state.faults > 0 && !is_an_answer {
                    let mut unheard = self.carry_out(state, sent, false);
                    unheard.faults -= 1;
                    for tries_again in [false, true] {
                        let mut lost = unheard.clone();
                        if self.lose_answer(&mut lost, sent, tries_again) {
                            moves.push((Move::CarriesUnheard(sent), lost.change(|_| {})));
                        }
                    }
                }
            }
        }
        if !sent.heard {
            moves.push((Move::Vanishes(sent), state.change(|next| next.take(sent))));
        } else if state.faults > 0 {
            for tries_again in [false, true] {
                let mut lost = state.fail(|next| {
                    next.take(sent);
                    next.sent.push(Sent { heard: false, ..sent });
                });
                if self.lose_answer(&mut lost, sent, tries_again) {
                    moves.push((Move::LosesConnection { sent, tries_again }, lost.change(|_| {})));
                }
            }
        }
    }

    /// The sender of the statement loses the answer. Returns whether it can react in this way.
    fn lose_answer(&self, state: &mut State, sent: Sent, tries_again: bool) -> bool {
        let process = &mut state.processes[sent.by];
        match sent.statement {
            Statement::Settle { epoch, step } => {
                let at = process.jobs.iter().position(|job| (job.epoch, job.step) == (epoch, step));
                let at = at.expect("it settles");
                if tries_again {
                    process.jobs[at].settles = false;
                    return true;
                }
                process.jobs.swap_remove(at);
            }
            Statement::Launch | Statement::CheckedLaunch { .. } | Statement::Launched { .. } => {
                process.expects = false;
            }
            Statement::Claim | Statement::CheckedClaim { .. } => process.claimer = Claimer::Idle,
        }
        process.in_doubt = true;
        !tries_again
    }

    /// Commits the statement. Its sender receives the answer if it still waits.
    fn carry_out(&self, state: &State, sent: Sent, heard: bool) -> State {
        let by = sent.by;
        state.change(|next| {
            next.take(sent);
            match sent.statement {
                Statement::CheckedClaim { listed } => {
                    let claimed = listed && next.run == Standing::Ready;
                    if claimed {
                        next.run = Standing::Running(Some(by));
                        next.epoch += 1;
                    }
                    if heard {
                        next.processes[by].claimer = Claimer::Idle;
                        next.hear_of_claim(by, claimed);
                    }
                }
                Statement::CheckedLaunch { listed } => {
                    next.run = if listed { Standing::Running(Some(by)) } else { Standing::Ready };
                    next.epoch += u8::from(listed);
                    let statement = Statement::Launched { epoch: next.epoch, claimed: listed };
                    next.sent.extend(heard.then_some(Sent { statement, ..sent }));
                }
                Statement::Launched { epoch, claimed } => {
                    next.processes[by].expects &= !heard;
                    let job = Job { epoch, step: 0, settles: false };
                    next.processes[by].jobs.extend((heard && claimed).then_some(job));
                }
                Statement::Settle { epoch, step } => self.settle(next, by, (epoch, step), heard),
                Statement::Claim | Statement::Launch => unreachable!("they lock first"),
            }
        })
    }

    fn settle(&self, next: &mut State, by: usize, (epoch, step): (u8, usize), heard: bool) {
        let under = next.epoch == epoch || self.fault == Some(Fault::SettlesUnderAnyEpoch);
        let running = matches!(next.run, Standing::Running(_))
            || self.fault == Some(Fault::SettlesWhatIsFree) && next.run == Standing::Ready;
        let applies = under && running;
        if applies {
            next.effects[step] += 1;
            next.next += 1;
            next.epoch += u8::from(self.fault != Some(Fault::SettlesWithoutRaising));
            next.run = match next.run {
                _ if next.next >= STEPS - 1 => Standing::Gone,
                Standing::Ready => Standing::Running(None),
                running => running,
            };
        }
        if !heard {
            return;
        }
        let goes_on = applies && next.run != Standing::Gone;
        let job = Job { epoch: next.epoch, step: next.next, settles: false };
        let process = &mut next.processes[by];
        let at = process.jobs.iter().position(|job| (job.epoch, job.step) == (epoch, step));
        process.jobs.swap_remove(at.expect("it settles"));
        process.jobs.extend(goes_on.then_some(job));
        process.in_doubt |= !applies;
    }

    /// Deaths, and the reaction of living processes.
    fn die(&self, state: &State, process: usize, moves: &mut Moves) {
        let here = &state.processes[process];
        let others_live = state.processes.iter().filter(|process| process.alive).count() > 1;
        if here.alive && state.faults > 0 {
            if others_live {
                moves.push((Move::Dies(process), state.fail(|next| next.lose(process))));
            }
            if here.has_session {
                let lost = state.fail(|next| next.processes[process].has_session = false);
                moves.push((Move::LosesSession(process), lost));
            }
        }
        let is_free = !here.holds_its_row() && !matches!(here.listed, Listed::Leaving { .. });
        if here.alive && !here.has_session && is_free {
            let renewed = state.change(|next| {
                let here = &mut next.processes[process];
                (here.has_session, here.listed, here.in_doubt) = (true, Listed::Yes, true);
            });
            moves.push((Move::Renews(process), renewed));
        }
        self.reap(state, process, moves);
    }

    /// Another process finds this one dead.
    fn reap(&self, state: &State, process: usize, moves: &mut Moves) {
        let here = &state.processes[process];
        let one_snapshot = self.fault == Some(Fault::FreesFromOldSnapshot);
        let waits = state.holds_its_row(process) && self.fault != Some(Fault::ClaimsWithoutLock)
            || here.holds_its_row();
        let others_live = state.processes.iter().enumerate().any(|(at, other)| at != process && other.alive);
        if here.listed == Listed::Yes && !here.has_session && others_live && (!waits || one_snapshot) {
            let retired = state.change(|next| {
                let seen_to_own = next.is_owned_by(process);
                next.processes[process].listed = Listed::Leaving { seen_to_own };
            });
            moves.push((Move::StrikesOut(process), retired));
        }
        if let Listed::Leaving { seen_to_own } = here.listed
            && (!waits || !one_snapshot)
        {
            let freed = state.change(|next| {
                next.processes[process].listed = Listed::No;
                if next.is_owned_by(process) && (seen_to_own || !one_snapshot) {
                    next.free();
                }
            });
            moves.push((Move::Frees(process), freed));
        }
    }
}

impl State {
    /// Drops the memory of a process, but not the statements that it has sent.
    fn lose(&mut self, process: usize) {
        let here = &mut self.processes[process];
        let listed = here.listed;
        *here = Process { alive: false, has_session: false, listed, ..Process::new() };
        for sent in self.sent.iter_mut().filter(|sent| sent.by == process) {
            sent.heard = false;
        }
    }
}

impl Process {
    /// Whether the process has an exclusive lock on its worker row.
    fn holds_its_row(&self) -> bool {
        matches!(self.claimer, Claimer::Pausing { holds: true } | Claimer::Disowning { holds: true, .. })
    }

    fn new() -> Self {
        Self {
            alive: true,
            has_session: true,
            listed: Listed::Yes,
            claimer: Claimer::Idle,
            in_doubt: false,
            expects: false,
            jobs: vec![],
        }
    }
}

impl Model for Fence {
    type State = State;
    type Move = Move;

    fn start(&self) -> State {
        State {
            run: Standing::Unlaunched,
            epoch: 0,
            next: 0,
            effects: [0; STEPS],
            launched: false,
            requested: false,
            robbed: false,
            processes: vec![Process::new(); self.processes],
            sent: vec![],
            faults: self.faults,
            looks: 1,
        }
    }

    fn moves(&self, state: &State) -> Moves {
        let mut moves = vec![];
        for (process, here) in state.processes.iter().enumerate() {
            if here.alive {
                self.work(state, process, &mut moves);
            }
            self.die(state, process, &mut moves);
        }
        for sent in &state.sent {
            self.serve(state, *sent, &mut moves);
        }
        if !state.launched && state.processes[0].alive {
            let launches = state.change(|next| {
                (next.launched, next.processes[0].expects) = (true, true);
                next.sent.push(Sent { statement: Statement::Launch, by: 0, heard: true });
            });
            moves.push((Move::Launches, launches));
        }
        if self.comes_back && state.run == Standing::Gone && !state.requested {
            let requested = state.change(|next| {
                (next.run, next.requested, next.next) = (Standing::Ready, true, STEPS - 1);
                let from_zero = self.fault == Some(Fault::ComesBackFromZero);
                next.epoch = if from_zero { 0 } else { COMES_BACK_UNDER };
            });
            moves.push((Move::Tells, requested));
        }
        moves
    }

    fn is_fault(&self, a_move: Move) -> bool {
        use Move::{CarriesUnheard, Dies, LosesConnection, LosesSession};
        matches!(a_move, Dies(_) | LosesSession(_) | LosesConnection { .. } | CarriesUnheard(_))
    }

    fn wrong(&self, state: &State) -> Option<&'static str> {
        let done = if state.requested { STEPS } else { STEPS - 1 };
        match state.effects {
            effects if effects.iter().any(|times| *times > 1) => Some(EFFECTS_ONCE),
            effects if state.run == Standing::Gone && effects[..done].contains(&0) => Some(NOTHING_LOST),
            _ => state.robbed.then_some(NOT_ROBBED),
        }
    }

    fn is_at_rest(&self, state: &State) -> bool {
        match state.run {
            Standing::Gone => state.requested || !self.comes_back,
            // The launch outcome is unknown, and the caller knows that.
            Standing::Unlaunched => state.sent.is_empty() && (state.launched || !state.processes[0].alive),
            Standing::Ready | Standing::Running(_) => false,
        }
    }
}

const ONE_FAULT: Fence = Fence { processes: 2, faults: 1, comes_back: true, fault: None };

#[test]
fn owned_run_is_settled_once_after_any_loss() {
    holds("fence", &Fence { faults: 0, ..ONE_FAULT });
    holds("fence with a fault", &ONE_FAULT);
    holds("fence with two faults", &Fence { faults: 2, comes_back: false, ..ONE_FAULT });
}

#[test]
fn every_fault_in_fencing_is_detected() {
    let with = |fault| Fence { fault: Some(fault), ..ONE_FAULT };
    violates("settles under any epoch", &with(Fault::SettlesUnderAnyEpoch), EFFECTS_ONCE);
    violates("settles without raising", &with(Fault::SettlesWithoutRaising), EFFECTS_ONCE);
    violates("settles what is free", &with(Fault::SettlesWhatIsFree), COMES_TO_REST);
    violates("claims without a lock", &with(Fault::ClaimsWithoutLock), COMES_TO_REST);
    violates("frees from an old snapshot", &with(Fault::FreesFromOldSnapshot), COMES_TO_REST);
    violates("asks before the pause", &with(Fault::AsksBeforeThePause), NOT_ROBBED);
    violates("launches unexpected", &with(Fault::LaunchesUnexpected), NOT_ROBBED);
    violates("does not disown", &with(Fault::NoDisown), COMES_TO_REST);
    violates("disowns although unlisted", &with(Fault::DisownsUnlisted), NOT_ROBBED);
    violates("comes back from zero", &with(Fault::ComesBackFromZero), EFFECTS_ONCE);
}
