//! Commands about few entities, their emitters, and the processes that decide them in batches.
//!
//! The commands take units from a stock, by the design of the engine (`engine/decisions.rs`, `entity_lock_free.sql`,
//! `entity_insert.sql`, `entity_write.sql`, the fence of `scoop.settle`).
//! A transaction locks the rows of its entities, which are those of its first snapshot, makes the missing ones, decides,
//! locks the row of each run and compares its epoch, and commits or rolls back. It exists in the server independently of
//! its process: after a death or on a lost connection it is committed, if the commit was sent, or it is rolled back.

use crate::check::{COMES_TO_REST, Model, holds, violates};

const NO_OVERDRAFT: &str = "an entity never has less than nothing";
const ONE_DECISION: &str = "a command is accepted or rejected, and not both";
const DECISION_FITS: &str = "a decision is made against the version that follows the events before it";
const ONE_EVENT: &str = "an event exists exactly if its run was settled with it";
const STATE_FOLLOWS: &str = "the state of an entity follows from its events, one for each version";
const NOT_IF_CANCELLED: &str = "a cancelled command is not decided";
const CONSUMED: &str = "a command ends with its decision, or because it was cancelled";

/// Faults in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Entities are read without a lock.
    DecidesWithoutLock,
    /// Rows are locked in the order in which the commands arrived.
    LocksAsTheyArrive,
    /// Missing rows are made in the order in which the commands arrived.
    MakesRowsAsTheyArrive,
    /// A row that another transaction has made meanwhile counts as one without events.
    IgnoresMadeRows,
    /// New states are written by a transaction of their own.
    AppliesOutside,
    /// Each settlement is committed by itself.
    CommitsEach,
    /// A settlement does not compare the epoch.
    SettlesUnderAnyEpoch,
    /// A settlement applies to a cancelled run.
    SettlesTheCancelled,
    /// Events are written although a settlement was void.
    WritesOverVoid,
    /// After a void settlement the decisions of the others are kept.
    KeepsDecisions,
    /// After a void settlement the whole batch counts as taken over.
    DropsTheBatch,
    /// After a lost answer the decisions are sent again as they were.
    SendsDecisionsAgain,
    /// A repeated send is not recognized by the id of its command.
    SendsAnew,
}

/// The size of the model.
#[derive(Clone, Copy)]
struct Commands {
    emitters: usize,
    processes: usize,
    /// The entity and the units of each command.
    commands: &'static [(usize, i8)],
    /// Whether the row of each entity exists at the beginning.
    rows: &'static [bool],
    /// How many deaths, lost sessions and lost connections may happen.
    faults: u8,
    cancels: u8,
    /// How many accepted commands are rolled back.
    undos: u8,
    fault: Option<Fault>,
}

/// The units of an entity without events.
const UNITS: i8 = 3;

/// The state of an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Stock {
    version: u8,
    units: i8,
}

const INITIAL: Stock = Stock { version: 0, units: UNITS };

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Entity {
    row: Option<Stock>,
    /// What follows from the recorded events.
    events: Stock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Run {
    Unsent,
    Ready,
    Running(usize),
    Ended,
}

/// A command with its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Command {
    run: Run,
    epoch: u8,
    giving_up: bool,
    /// Its rollback was requested.
    undoing: bool,
    accepted: u8,
    rejected: u8,
    undone: u8,
    cancelled: bool,
    events: u8,
}

/// A claimed run whose decision is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Job {
    command: usize,
    epoch: u8,
    undoes: bool,
}

/// A decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Made {
    job: Job,
    entity: usize,
    seen: Stock,
    /// None: it is rejected.
    change: Option<i8>,
}

impl Made {
    fn after(&self) -> Stock {
        let Stock { version, units } = self.seen;
        self.change.map_or(self.seen, |change| Stock { version: version + 1, units: units + change })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// This many rows of its entities are locked.
    Locks(usize),
    /// This many missing rows are made, or were found to be made by others.
    Makes { rows: usize, conflict: bool },
    /// This many runs are locked and compared.
    Settles(usize),
    /// All of it is written, and its commit or rollback under way.
    Ends,
}

/// A transaction in the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Transaction {
    by: usize,
    /// Whether its process waits for the answer.
    heard: bool,
    phase: Phase,
    batch: Vec<Job>,
    /// The entities whose rows its first snapshot has, then those without one.
    found: Vec<usize>,
    missing: Vec<usize>,
    /// The locked states.
    stocks: Vec<(usize, Stock)>,
    made: Vec<Made>,
    void: Vec<Job>,
}

impl Transaction {
    fn holds_row(&self, entity: usize) -> bool {
        self.stocks.iter().any(|(held, _)| *held == entity)
    }

    /// In the order in which they are settled.
    fn runs(&self) -> Vec<Job> {
        let mut runs = self.batch.clone();
        runs.sort_unstable_by_key(|job| job.command);
        runs
    }

    fn holds_run(&self, command: usize) -> bool {
        let locked = match self.phase {
            Phase::Locks(_) | Phase::Makes { .. } => 0,
            Phase::Settles(runs) => runs,
            Phase::Ends => self.batch.len(),
        };
        locked > 0 && self.runs()[..locked].iter().any(|job| job.command == command)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Process {
    alive: bool,
    listed: bool,
    /// In the order of their arrival.
    queue: Vec<Job>,
    /// Decided in a transaction, or again.
    batch: Vec<Job>,
    /// Decisions of an earlier transaction, which only a fault keeps.
    kept: Vec<Made>,
    /// Runs whose settlement was void.
    void: Vec<Job>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    commands: Vec<Command>,
    entities: Vec<Entity>,
    /// The commands that emitters send.
    held: Vec<usize>,
    processes: Vec<Process>,
    transactions: Vec<Transaction>,
    faults: u8,
    cancels: u8,
    undos: u8,
    wrong: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Reserves(usize),
    Sends(usize),
    SendsUnheard(usize),
    Claims(usize, usize),
    Begins(usize),
    Locks { by: usize, entity: usize },
    Makes { by: usize, entity: usize },
    BeginsAgain(usize),
    Settles { by: usize, command: usize },
    Commits(usize),
    CommitsLate(usize),
    RollsBack(usize),
    Vanishes(usize),
    GivesUp(usize, usize),
    Cancels(usize),
    Undoes(usize),
    LosesConnection(usize),
    LosesSession(usize),
    Renews(usize),
    Dies(usize),
    Reaps(usize),
}

type Moves = Vec<(Move, State)>;

impl State {
    fn change(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut next = self.clone();
        change(&mut next);
        next.held.sort_unstable();
        next.transactions.sort_unstable_by_key(|transaction| (transaction.by, transaction.heard));
        next
    }

    fn fail(&self, change: impl FnOnce(&mut Self)) -> Self {
        self.change(|next| {
            next.faults -= 1;
            change(next);
        })
    }

    /// Whether another transaction holds this row, be it a new one.
    fn is_row_held(&self, entity: usize, but: usize) -> bool {
        let others = self.transactions.iter().enumerate().filter(|(at, _)| *at != but);
        others.into_iter().any(|(_, other)| other.holds_row(entity))
    }

    fn is_run_held(&self, command: usize, but: Option<usize>) -> bool {
        let others = self.transactions.iter().enumerate().filter(|(at, _)| Some(*at) != but);
        others.into_iter().any(|(_, other)| other.holds_run(command))
    }

    /// Whether a settlement of this job applies.
    fn admits(&self, job: Job, fault: Option<Fault>) -> bool {
        let command = &self.commands[job.command];
        let claimed = command.epoch == job.epoch && matches!(command.run, Run::Running(_));
        let given_up = command.giving_up && !job.undoes && fault != Some(Fault::SettlesTheCancelled);
        (claimed || fault == Some(Fault::SettlesUnderAnyEpoch)) && !given_up
    }

    /// Applies the settlement of a decision.
    fn settle(&mut self, made: &Made) {
        let command = &mut self.commands[made.job.command];
        if command.giving_up && !made.job.undoes {
            self.wrong = Some(NOT_IF_CANCELLED);
        }
        match (made.job.undoes, made.change) {
            (true, _) => command.undone += 1,
            (false, Some(_)) => command.accepted += 1,
            (false, None) => command.rejected += 1,
        }
        command.run = Run::Ended;
        command.epoch += 1;
    }

    /// Records the event of a decision.
    fn record(&mut self, made: &Made) {
        let entity = &mut self.entities[made.entity];
        if made.seen != entity.events {
            self.wrong = self.wrong.or(Some(DECISION_FITS));
        }
        if let Some(change) = made.change {
            entity.events.version += 1;
            entity.events.units += change;
            self.commands[made.job.command].events += 1;
        }
    }

    fn commit(&mut self, transaction: &Transaction, fault: Option<Fault>) {
        for made in &transaction.made {
            let void = transaction.void.contains(&made.job);
            if !void && fault != Some(Fault::CommitsEach) {
                self.settle(made);
            }
            self.record(made);
            if fault != Some(Fault::AppliesOutside) && made.change.is_some() {
                self.entities[made.entity].row = Some(made.after());
            }
        }
        for (entity, stock) in &transaction.stocks {
            self.entities[*entity].row.get_or_insert(*stock);
        }
    }
}

impl Commands {
    fn is(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn emit(&self, state: &State, moves: &mut Moves) {
        let unsent = (0..state.commands.len())
            .find(|at| state.commands[*at].run == Run::Unsent && !state.held.contains(at));
        if let Some(command) = unsent.filter(|_| state.held.len() < self.emitters) {
            moves.push((Move::Reserves(command), state.change(|next| next.held.push(command))));
        }
        for (at, command) in state.held.iter().copied().enumerate() {
            let send = |next: &mut State| {
                let run = &mut next.commands[command].run;
                if *run == Run::Unsent || *run == Run::Ended && self.is(Fault::SendsAnew) {
                    *run = Run::Ready;
                }
            };
            let sent = state.change(|next| {
                send(next);
                next.held.remove(at);
            });
            moves.push((Move::Sends(command), sent));
            if state.faults > 0 && state.commands[command].run == Run::Unsent {
                moves.push((Move::SendsUnheard(command), state.fail(send)));
            }
        }
    }

    /// What a living process does.
    fn work(&self, state: &State, process: usize, moves: &mut Moves) {
        let here = &state.processes[process];
        for (at, command) in state.commands.iter().enumerate() {
            if command.run == Run::Ready && here.listed {
                let claimed = state.change(|next| {
                    let claimed = &mut next.commands[at];
                    claimed.run = Run::Running(process);
                    claimed.epoch += 1;
                    let job = Job { command: at, epoch: claimed.epoch, undoes: claimed.undoing };
                    next.processes[process].queue.push(job);
                });
                moves.push((Move::Claims(process, at), claimed));
            }
        }
        let is_busy =
            state.transactions.iter().any(|transaction| transaction.by == process && transaction.heard);
        if !is_busy && (!here.batch.is_empty() || !here.queue.is_empty()) {
            let begun = state.change(|next| {
                let here = &mut next.processes[process];
                if here.batch.is_empty() {
                    here.batch = std::mem::take(&mut here.queue);
                }
                let batch = here.batch.clone();
                next.transactions.push(self.begin(next, process, batch));
            });
            moves.push((Move::Begins(process), begun));
        }
        if let Some(job) = here.void.first().copied() {
            // A settlement of its own, under the same fence, unless a transaction holds the row of the run.
            let command = &state.commands[job.command];
            let holds = command.epoch == job.epoch && command.run == Run::Running(process);
            if !state.is_run_held(job.command, None) {
                let gone = state.change(|next| {
                    next.processes[process].void.remove(0);
                    if holds {
                        let command = &mut next.commands[job.command];
                        (command.run, command.cancelled) = (Run::Ended, command.giving_up);
                        command.epoch += 1;
                    }
                });
                moves.push((Move::GivesUp(process, job.command), gone));
            }
        }
    }

    /// A transaction with its first snapshot.
    fn begin(&self, state: &State, by: usize, batch: Vec<Job>) -> Transaction {
        let mut entities = vec![];
        for job in &batch {
            let entity = self.commands[job.command].0;
            if !entities.contains(&entity) {
                entities.push(entity);
            }
        }
        let arrived = entities.clone();
        entities.sort_unstable();
        let exists = |entity: &usize| state.entities[*entity].row.is_some();
        let of = |as_they_arrive: bool| if as_they_arrive { arrived.clone() } else { entities.clone() };
        let mut found = of(self.is(Fault::LocksAsTheyArrive));
        found.retain(exists);
        let mut missing = of(self.is(Fault::MakesRowsAsTheyArrive));
        missing.retain(|entity| !exists(entity));
        let (stocks, made, void) = (vec![], vec![], vec![]);
        Transaction { by, heard: true, phase: Phase::Locks(0), batch, found, missing, stocks, made, void }
    }

    /// The decisions of a batch, each against the state after those before it.
    fn decide(&self, transaction: &Transaction) -> Vec<Made> {
        let mut stocks = transaction.stocks.clone();
        let decide = |job: &Job| {
            let (entity, units) = self.commands[job.command];
            let stock = stocks.iter_mut().find(|(held, _)| *held == entity).expect("it is locked");
            let enough = units <= stock.1.units;
            let change = if job.undoes { Some(units) } else { enough.then_some(-units) };
            let made = Made { job: *job, entity, seen: stock.1, change };
            stock.1 = made.after();
            made
        };
        transaction.batch.iter().map(decide).collect()
    }

    /// The next part of a transaction whose process listens.
    fn carry_on(&self, state: &State, at: usize, moves: &mut Moves) {
        let transaction = &state.transactions[at];
        let by = transaction.by;
        match transaction.phase {
            Phase::Locks(rows) => {
                let Some(entity) = transaction.found.get(rows).copied() else {
                    let next = state.change(|next| {
                        next.transactions[at].phase = Phase::Makes { rows: 0, conflict: false };
                    });
                    // No other transaction sees the change of phase.
                    return self.carry_on(&next, at, moves);
                };
                if state.is_row_held(entity, at) && !self.is(Fault::DecidesWithoutLock) {
                    return;
                }
                let locked = state.change(|next| {
                    let stock = next.entities[entity].row.expect("rows stay");
                    next.transactions[at].stocks.push((entity, stock));
                    next.transactions[at].phase = Phase::Locks(rows + 1);
                });
                moves.push((Move::Locks { by, entity }, locked));
            }
            Phase::Makes { rows, conflict } => match transaction.missing.get(rows).copied() {
                Some(entity) => {
                    if state.is_row_held(entity, at) && !self.is(Fault::DecidesWithoutLock) {
                        return;
                    }
                    let made = state.change(|next| {
                        let meanwhile = next.entities[entity].row.is_some();
                        let conflicts = meanwhile && !self.is(Fault::IgnoresMadeRows);
                        if !conflicts {
                            next.transactions[at].stocks.push((entity, INITIAL));
                        }
                        let conflict = conflict || conflicts;
                        next.transactions[at].phase = Phase::Makes { rows: rows + 1, conflict };
                    });
                    moves.push((Move::Makes { by, entity }, made));
                }
                None if conflict => {
                    let again = state.change(|next| drop(next.transactions.remove(at)));
                    moves.push((Move::BeginsAgain(by), again));
                }
                None => {
                    let next = state.change(|next| {
                        let kept = std::mem::take(&mut next.processes[by].kept);
                        let transaction = &mut next.transactions[at];
                        let decided = self.decide(transaction);
                        let again = |made: &Made| kept.iter().find(|kept| kept.job == made.job).copied();
                        transaction.made = decided.iter().map(|made| again(made).unwrap_or(*made)).collect();
                        transaction.phase = Phase::Settles(0);
                    });
                    // Decisions are made between two statements.
                    self.carry_on(&next, at, moves);
                }
            },
            Phase::Settles(runs) => {
                let Some(job) = transaction.runs().get(runs).copied() else {
                    return self.end(state, at, moves);
                };
                if state.is_run_held(job.command, Some(at)) {
                    return;
                }
                let settled = state.change(|next| {
                    let admitted = next.admits(job, self.fault);
                    let transaction = &mut next.transactions[at];
                    transaction.phase = Phase::Settles(runs + 1);
                    if !admitted {
                        transaction.void.push(job);
                    } else if self.is(Fault::CommitsEach) {
                        let made =
                            *transaction.made.iter().find(|made| made.job == job).expect("it was made");
                        next.settle(&made);
                    }
                });
                moves.push((Move::Settles { by, command: job.command }, settled));
            }
            Phase::Ends => self.end(state, at, moves),
        }
    }

    /// The end of a transaction whose runs are all compared: a commit, or a rollback because some are void.
    fn end(&self, state: &State, at: usize, moves: &mut Moves) {
        let transaction = &state.transactions[at];
        let by = transaction.by;
        if transaction.void.is_empty() || self.is(Fault::WritesOverVoid) {
            let sent = state.change(|next| next.transactions[at].phase = Phase::Ends);
            let committed = sent.change(|next| {
                let transaction = next.transactions.remove(at);
                next.commit(&transaction, self.fault);
                next.processes[by].batch.clear();
                next.processes[by].void.extend(transaction.void);
            });
            moves.push((Move::Commits(by), committed));
            if state.faults > 0 {
                // The commit is under way, and the answer will not arrive.
                let lost = sent.fail(|next| self.lose(next, at));
                moves.push((Move::LosesConnection(by), lost));
            }
        } else {
            let rolled_back = state.change(|next| {
                let transaction = next.transactions.remove(at);
                let here = &mut next.processes[by];
                if self.is(Fault::KeepsDecisions) {
                    here.kept.clone_from(&transaction.made);
                }
                here.batch.retain(|job| !transaction.void.contains(job));
                if self.is(Fault::DropsTheBatch) {
                    here.batch.clear();
                }
                here.void.extend(transaction.void);
            });
            moves.push((Move::RollsBack(by), rolled_back));
        }
    }

    fn lose(&self, next: &mut State, at: usize) {
        let transaction = &mut next.transactions[at];
        transaction.heard = false;
        if self.is(Fault::SendsDecisionsAgain) {
            next.processes[transaction.by].kept.clone_from(&transaction.made);
        }
    }

    /// What happens in the server, and to processes.
    fn happen(&self, state: &State, moves: &mut Moves) {
        for (at, transaction) in state.transactions.iter().enumerate() {
            let by = transaction.by;
            if transaction.heard && state.processes[by].alive {
                self.carry_on(state, at, moves);
                let is_sent =
                    matches!(transaction.phase, Phase::Settles(runs) if runs == transaction.batch.len());
                if state.faults > 0 && !is_sent {
                    moves.push((Move::LosesConnection(by), state.fail(|next| self.lose(next, at))));
                }
                continue;
            }
            let vanished = state.change(|next| drop(next.transactions.remove(at)));
            moves.push((Move::Vanishes(by), vanished));
            if transaction.phase == Phase::Ends {
                let committed = state.change(|next| {
                    let transaction = next.transactions.remove(at);
                    next.commit(&transaction, self.fault);
                });
                moves.push((Move::CommitsLate(by), committed));
            }
        }
        for (at, command) in state.commands.iter().enumerate() {
            let is_free = !state.is_run_held(at, None);
            let under_way = matches!(command.run, Run::Ready | Run::Running(_)) && !command.undoing;
            if state.cancels > 0 && under_way && !command.giving_up && is_free {
                let cancelled = state.change(|next| {
                    next.cancels -= 1;
                    next.commands[at].giving_up = true;
                });
                moves.push((Move::Cancels(at), cancelled));
            }
            if state.undos > 0 && command.run == Run::Ended && command.accepted == 1 && !command.undoing {
                let returns = state.change(|next| {
                    next.undos -= 1;
                    next.commands[at].run = Run::Ready;
                    next.commands[at].undoing = true;
                });
                moves.push((Move::Undoes(at), returns));
            }
        }
    }

    /// Deaths, real or presumed, and the reaction to them.
    fn die(&self, state: &State, process: usize, moves: &mut Moves) {
        let here = &state.processes[process];
        let others_live = state.processes.iter().filter(|process| process.alive).count() > 1;
        if here.alive && others_live && state.faults > 0 {
            let dead = state.fail(|next| {
                let here = &mut next.processes[process];
                here.alive = false;
                for jobs in [&mut here.queue, &mut here.batch, &mut here.void] {
                    jobs.clear();
                }
                here.kept.clear();
                for transaction in &mut next.transactions {
                    let is_own = transaction.by == process && transaction.heard;
                    if is_own && transaction.phase == Phase::Settles(transaction.batch.len()) {
                        let commits = transaction.void.is_empty() || self.is(Fault::WritesOverVoid);
                        transaction.phase = if commits { Phase::Ends } else { transaction.phase };
                    }
                }
            });
            moves.push((Move::Dies(process), dead));
        }
        if here.alive && here.listed && state.faults > 0 {
            let lost = state.fail(|next| next.processes[process].listed = false);
            moves.push((Move::LosesSession(process), lost));
        }
        let owned: Vec<_> =
            (0..state.commands.len()).filter(|at| state.commands[*at].run == Run::Running(process)).collect();
        let is_gone = !here.alive || !here.listed;
        if is_gone && !owned.is_empty() && !owned.iter().any(|at| state.is_run_held(*at, None)) {
            let freed = state.change(|next| owned.iter().for_each(|at| next.commands[*at].run = Run::Ready));
            moves.push((Move::Reaps(process), freed));
        }
        if here.alive && !here.listed && owned.is_empty() {
            moves.push((Move::Renews(process), state.change(|next| next.processes[process].listed = true)));
        }
    }
}

impl Model for Commands {
    type State = State;
    type Move = Move;

    fn start(&self) -> State {
        let command = Command {
            run: Run::Unsent,
            epoch: 0,
            giving_up: false,
            undoing: false,
            accepted: 0,
            rejected: 0,
            undone: 0,
            cancelled: false,
            events: 0,
        };
        let entity = |exists: &bool| Entity { row: exists.then_some(INITIAL), events: INITIAL };
        let process =
            Process { alive: true, listed: true, queue: vec![], batch: vec![], kept: vec![], void: vec![] };
        State {
            commands: vec![command; self.commands.len()],
            entities: self.rows.iter().map(entity).collect(),
            held: vec![],
            processes: vec![process; self.processes],
            transactions: vec![],
            faults: self.faults,
            cancels: self.cancels,
            undos: self.undos,
            wrong: None,
        }
    }

    fn moves(&self, state: &State) -> Moves {
        let mut moves = vec![];
        self.emit(state, &mut moves);
        for (process, here) in state.processes.iter().enumerate() {
            if here.alive {
                self.work(state, process, &mut moves);
            }
            self.die(state, process, &mut moves);
        }
        self.happen(state, &mut moves);
        moves
    }

    fn is_fault(&self, a_move: Move) -> bool {
        let lost = matches!(a_move, Move::SendsUnheard(_) | Move::LosesConnection(_) | Move::LosesSession(_));
        lost || matches!(a_move, Move::Dies(_) | Move::Cancels(_) | Move::Undoes(_))
    }

    fn wrong(&self, state: &State) -> Option<&'static str> {
        let overdrawn = |entity: &Entity| {
            let row = entity.row.unwrap_or(INITIAL);
            entity.events.units < 0 || row.units < 0
        };
        if state.entities.iter().any(overdrawn) {
            return Some(NO_OVERDRAFT);
        }
        if state.commands.iter().any(|it| it.accepted + it.rejected > 1 || it.undone > 1) {
            return Some(ONE_DECISION);
        }
        if state.commands.iter().any(|it| it.events != it.accepted + it.undone) {
            return Some(ONE_EVENT);
        }
        if state.wrong.is_some() {
            return state.wrong;
        }
        if state.entities.iter().any(|entity| entity.row.unwrap_or(INITIAL) != entity.events) {
            return Some(STATE_FOLLOWS);
        }
        let is_lost =
            |it: &Command| it.run == Run::Ended && it.accepted + it.rejected != u8::from(!it.cancelled);
        state.commands.iter().any(is_lost).then_some(CONSUMED)
    }

    fn is_at_rest(&self, state: &State) -> bool {
        let is_idle = |process: &Process| {
            process.queue.is_empty() && process.batch.is_empty() && process.void.is_empty()
        };
        state.held.is_empty()
            && state.transactions.is_empty()
            && state.commands.iter().all(|command| command.run == Run::Ended)
            && state.processes.iter().all(is_idle)
    }
}

/// Two commands of which the stock has units for one, and a third one that it always has units for.
const ONE_ENTITY: Commands = Commands {
    emitters: 2,
    processes: 2,
    commands: &[(0, 2), (0, 2), (0, 1)],
    rows: &[true],
    faults: 0,
    cancels: 0,
    undos: 0,
    fault: None,
};

/// Of which the stock has units for one.
const TWICE: &[(usize, i8)] = &[(0, 2), (0, 2)];

/// Without rows at the beginning.
const TWO_ENTITIES: Commands =
    Commands { commands: &[(0, 2), (1, 2), (0, 2)], rows: &[false, false], ..ONE_ENTITY };

/// Every batch may need both rows, in both orders of arrival.
const CROSSED: Commands =
    Commands { emitters: 4, commands: &[(0, 1), (1, 1), (0, 1), (1, 1)], rows: &[true, true], ..ONE_ENTITY };

#[test]
fn commands_are_decided_one_after_the_other() {
    holds("commands, one entity", &ONE_ENTITY);
    holds("commands, two entities without rows", &TWO_ENTITIES);
    holds("commands, locks in both orders", &CROSSED);
}

#[test]
fn commands_are_decided_in_spite_of_deaths_and_lost_answers() {
    let twice = Commands { faults: 1, commands: TWICE, ..ONE_ENTITY };
    holds("two commands, with a fault", &twice);
    holds("two commands without a row, with a fault", &Commands { rows: &[false], ..twice });
    holds("one command, with three faults", &Commands { faults: 3, commands: &[(0, 2)], ..twice });
}

#[test]
fn cancelled_commands_and_rollbacks_leave_the_others_correct() {
    holds("commands, one cancelled", &Commands { cancels: 1, ..ONE_ENTITY });
    holds("commands, one undone", &Commands { undos: 1, ..ONE_ENTITY });
    let all = Commands { faults: 1, cancels: 1, undos: 1, commands: TWICE, ..ONE_ENTITY };
    holds("two commands, with a fault, one cancelled, one undone", &all);
}

#[test]
fn every_fault_in_deciding_is_detected() {
    let quiet = |fault| Commands { fault: Some(fault), ..ONE_ENTITY };
    let noisy = |fault| Commands { faults: 1, commands: TWICE, ..quiet(fault) };
    let cancelled = |fault| Commands { cancels: 1, ..quiet(fault) };
    let crossed = |fault| Commands { fault: Some(fault), ..CROSSED };
    violates("decides without a lock", &quiet(Fault::DecidesWithoutLock), NO_OVERDRAFT);
    violates("locks as they arrive", &crossed(Fault::LocksAsTheyArrive), COMES_TO_REST);
    let makes = Commands { rows: &[false, false], ..crossed(Fault::MakesRowsAsTheyArrive) };
    violates("makes rows as they arrive", &makes, COMES_TO_REST);
    let made = Commands { rows: &[false], ..quiet(Fault::IgnoresMadeRows) };
    violates("ignores made rows", &made, NO_OVERDRAFT);
    violates("applies outside of the transaction", &quiet(Fault::AppliesOutside), STATE_FOLLOWS);
    violates("commits each settlement", &quiet(Fault::CommitsEach), ONE_EVENT);
    violates("settles under any epoch", &noisy(Fault::SettlesUnderAnyEpoch), ONE_DECISION);
    violates("settles the cancelled", &cancelled(Fault::SettlesTheCancelled), NOT_IF_CANCELLED);
    violates("writes over a void settlement", &cancelled(Fault::WritesOverVoid), ONE_EVENT);
    violates("keeps decisions after a void one", &cancelled(Fault::KeepsDecisions), DECISION_FITS);
    violates("drops the batch", &cancelled(Fault::DropsTheBatch), COMES_TO_REST);
    violates("sends decisions again", &noisy(Fault::SendsDecisionsAgain), NO_OVERDRAFT);
    violates("sends anew", &noisy(Fault::SendsAnew), ONE_DECISION);
}
