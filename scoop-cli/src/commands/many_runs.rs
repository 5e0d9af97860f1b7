//! A request for each of many runs: `scoop cancel`, `scoop retry` and `scoop relaunch` with filters in place of an id.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;

use scoop_core::Escaped;
use scoop_operate::{OperateError, RunSummary};
use scoop_runtime::{
    CancelAnswer, HierarchyId, RelaunchAnswer, RepairAnswer, Request, RollbackAnswer, RunId, RunPhase,
    RunRequest, RuntimeError, Scoop,
};
use serde::Serialize;
use uuid::Uuid;

use super::filters::Filters;
use super::runs::{HEADER, PAGE_MAX, row};
use crate::consent::Consent;
use crate::fault::{Exit, Fault};
use crate::interrupt::interrupted;
use crate::output::{Output, Rows, counted};
use crate::progress::Progress;

/// The maximum number of sagas and states in a question.
const GROUPS_MAX: usize = 5;

/// Runs that are chosen by filters.
#[derive(Debug, clap::Args)]
pub(crate) struct Many {
    #[command(flatten)]
    pub(super) filters: Filters,
    /// How many of these runs at most
    #[arg(long, value_name = "RUNS", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
}

/// The states in which a run can accept this request: those that `--state` accepts.
pub(super) fn phases_for(request: RunRequest) -> impl Iterator<Item = RunPhase> {
    RunPhase::ALL.into_iter().filter(move |phase| phase.requests().contains(&request))
}

/// The response to a request for one run.
pub(super) struct Answer {
    pub(super) name: &'static str,
    pub(super) text: String,
    kind: AnswerKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerKind {
    Accepted,
    /// Refused, unless the same request was accepted for another run of the hierarchy, which decides on this one, too.
    Dependent,
    Refused,
}

impl From<CancelAnswer> for Answer {
    fn from(answer: CancelAnswer) -> Self {
        let kind = match answer {
            CancelAnswer::Accepted => AnswerKind::Accepted,
            _ => AnswerKind::Dependent,
        };
        Self { name: answer.name(), text: answer.to_string(), kind }
    }
}

impl From<RollbackAnswer> for Answer {
    fn from(answer: RollbackAnswer) -> Self {
        let kind = match answer {
            RollbackAnswer::Accepted => AnswerKind::Accepted,
            _ => AnswerKind::Refused,
        };
        Self { name: answer.name(), text: answer.to_string(), kind }
    }
}

impl From<RepairAnswer> for Answer {
    fn from(answer: RepairAnswer) -> Self {
        let kind = match answer {
            RepairAnswer::Accepted => AnswerKind::Accepted,
            RepairAnswer::FailedBelow => AnswerKind::Dependent,
            _ => AnswerKind::Refused,
        };
        Self { name: answer.name(), text: answer.to_string(), kind }
    }
}

impl From<RelaunchAnswer> for Answer {
    fn from(answer: RelaunchAnswer) -> Self {
        let kind = match answer {
            RelaunchAnswer::Accepted(_) => AnswerKind::Accepted,
            _ => AnswerKind::Refused,
        };
        Self { name: answer.name(), text: answer.to_string(), kind }
    }
}

impl Answer {
    pub(super) fn is_accepted(&self) -> bool {
        self.kind == AnswerKind::Accepted
    }

    /// The answer if the run was deleted after it was listed.
    fn gone() -> Self {
        let text = "the run is not there any more: its hierarchy was deleted".to_owned();
        Self { name: "gone", text, kind: AnswerKind::Refused }
    }

    /// The answer if the record of the run cannot be read.
    fn damaged(error: &OperateError) -> Self {
        Self { name: "damaged", text: error.to_string(), kind: AnswerKind::Refused }
    }
}

/// The runs that pass the filters.
#[derive(Default)]
struct Chosen {
    /// In the order of their ids, which is that of their beginnings: ancestors before descendants.
    runs: BTreeMap<Uuid, ChosenRun>,
    groups: BTreeMap<(String, RunPhase), usize>,
    /// Whether the limit was reached, so that there may be more.
    more: bool,
}

/// A run that passes the filters.
struct ChosenRun {
    hierarchy: HierarchyId,
    parent: Option<Uuid>,
}

impl Chosen {
    /// How many they are, by saga and state.
    fn described(&self) -> String {
        let groups = self.groups.iter().take(GROUPS_MAX);
        let mut groups: Vec<_> = groups
            .map(|((saga, phase), count)| format!("{count} of `{}` ({phase})", Escaped(saga)))
            .collect();
        let others: usize = self.groups.values().skip(GROUPS_MAX).sum();
        if others > 0 {
            groups.push(format!("{others} others"));
        }
        format!("{}: {}", counted(self.runs.len(), "run", "runs"), groups.join(", "))
    }
}

/// What became of the requests.
#[derive(Default)]
struct Tally {
    accepted: usize,
    /// The hierarchies of accepted requests.
    hierarchies: BTreeSet<HierarchyId>,
    dependent: Vec<(HierarchyId, Answer)>,
    refused: Refused,
    /// In a dry run, the runs that would be cancelled by their own request or by that of a run above.
    cancelled: BTreeSet<Uuid>,
    /// How many of these would be by that of a run above, and how many may be: runs above them do not pass the filters.
    covered: usize,
    perhaps_covered: usize,
}

/// The number of refused requests with each answer and text. The text can be about one run.
type Refused = BTreeMap<(&'static str, String), usize>;

/// The result.
#[derive(Serialize)]
struct ManyRecord<'a> {
    runs: usize,
    accepted: usize,
    /// Those that the decision on another run of their hierarchy settles.
    covered: usize,
    refused: Vec<RefusedRecord<'a>>,
    /// Those without a request, since the user interrupted the command or an error ended it.
    left: usize,
    /// Whether the limit was reached, so that there may be more runs.
    more: bool,
}

/// What would become of the requests.
#[derive(Serialize)]
struct CheckedRecord {
    accepted: usize,
    covered: usize,
    perhaps_covered: usize,
}

/// Refused requests with one answer.
#[derive(Serialize)]
struct RefusedRecord<'a> {
    answer: &'a str,
    text: &'a str,
    runs: usize,
}

impl<'a> From<(&'a (&'static str, String), &'a usize)> for RefusedRecord<'a> {
    fn from(((answer, text), runs): (&'a (&'static str, String), &'a usize)) -> Self {
        Self { answer, text, runs: *runs }
    }
}

impl Tally {
    fn count(&mut self, hierarchy: HierarchyId, answer: Answer) {
        match answer.kind {
            AnswerKind::Accepted => {
                self.accepted += 1;
                self.hierarchies.insert(hierarchy);
            }
            AnswerKind::Dependent => self.dependent.push((hierarchy, answer)),
            AnswerKind::Refused => self.refuse(answer),
        }
    }

    /// Counts the answer to a dry run of a cancellation. The request for a run also cancels all runs below it, so that those for
    /// these would find nothing to do.
    fn count_cancellation(&mut self, chosen: &Chosen, (id, run): (Uuid, &ChosenRun), answer: Answer) {
        if !answer.is_accepted() {
            return self.count(run.hierarchy, answer);
        }
        self.cancelled.insert(id);
        match run.parent {
            Some(parent) if self.cancelled.contains(&parent) => self.covered += 1,
            Some(parent)
                if !chosen.runs.contains_key(&parent) && self.hierarchies.contains(&run.hierarchy) =>
            {
                self.perhaps_covered += 1;
            }
            _ => self.count(run.hierarchy, answer),
        }
    }

    fn refuse(&mut self, Answer { name, text, .. }: Answer) {
        *self.refused.entry((name, text)).or_default() += 1;
    }

    /// The result for so many runs.
    fn ended(mut self, runs: usize) -> Ended {
        let mut covered = self.covered;
        for (hierarchy, answer) in std::mem::take(&mut self.dependent) {
            if self.hierarchies.contains(&hierarchy) {
                covered += 1;
            } else {
                self.refuse(answer);
            }
        }
        let Self { accepted, refused, perhaps_covered, .. } = self;
        let refusals: usize = refused.values().sum();
        let left = runs - accepted - covered - perhaps_covered - refusals;
        Ended { runs, accepted, covered, perhaps_covered, refused, left }
    }
}

/// What became of all requests.
struct Ended {
    runs: usize,
    accepted: usize,
    covered: usize,
    /// Only in a dry run.
    perhaps_covered: usize,
    refused: Refused,
    left: usize,
}

impl Ended {
    fn exit(&self) -> Exit {
        match (self.left, self.refused.is_empty()) {
            (0, true) => Exit::Success,
            (0, false) => Exit::NotAccepted,
            _ => Exit::Failed,
        }
    }

    /// Writes it. `more` says that the limit was reached.
    fn write(&self, output: Output, more: bool) -> Result<(), Fault> {
        let Self { runs, accepted, covered, left, .. } = *self;
        if output.json {
            let refused = self.refused.iter().map(Into::into).collect();
            output.record(&ManyRecord { runs, accepted, covered, refused, left, more })?;
            return Ok(());
        }
        output.line(format_args!("accepted: {}", counted(accepted, "run", "runs")))?;
        if covered > 0 {
            let runs = counted(covered, "run", "runs");
            output.line(format_args!("settled with another run of the hierarchy: {runs}"))?;
        }
        self.write_refused(output)?;
        if left > 0 {
            output.line(format_args!("not requested: {}", counted(left, "run", "runs")))?;
        }
        if more {
            output.remark("there may be more: the limit was reached");
        }
        Ok(())
    }

    /// Writes what would become of the requests.
    fn write_checked(&self, output: Output) -> Result<(), Fault> {
        let Self { accepted, covered, perhaps_covered, .. } = *self;
        if output.json {
            output.record(&CheckedRecord { accepted, covered, perhaps_covered })?;
        } else if covered + perhaps_covered > 0 {
            output.line(format_args!("would be accepted: {}", counted(accepted, "run", "runs")))?;
            for (verb, count) in
                [("would", covered), ("may", perhaps_covered)].into_iter().filter(|it| it.1 > 0)
            {
                let runs = counted(count, "run", "runs");
                output.line(format_args!("{verb} be settled with another run of the hierarchy: {runs}"))?;
            }
        }
        self.write_refused(output)
    }

    /// Writes the refused requests.
    fn write_refused(&self, output: Output) -> Result<(), Fault> {
        for refused in self.refused.iter().map(RefusedRecord::from) {
            if output.json {
                output.record(&refused)?;
            } else {
                let RefusedRecord { answer, text, runs } = refused;
                output.line(format_args!("{answer}: {}: {text}", counted(runs, "run", "runs")))?;
            }
        }
        Ok(())
    }
}

impl Many {
    /// The one id that the command is about; `None` if it is about the runs that pass the filters.
    pub(super) fn or_id(&self, command: &str, id: Option<Uuid>) -> Result<Option<Uuid>, Fault> {
        match (id, self.filters.is_empty()) {
            (Some(id), true) if self.limit.is_none() => Ok(Some(id)),
            (Some(id), _) => Err(Fault::Usage(format!(
                "an id and filters together are not possible: write `scoop {command} {id}` with its other options, or leave \
                 the id out for all runs that pass the filters"
            ))),
            (None, true) => Err(Fault::Usage(format!(
                "an id is missing, or filters that choose runs, such as --saga: `scoop {command} --help` lists them"
            ))),
            (None, false) => Ok(None),
        }
    }

    /// Whether only a topic is given.
    pub(super) fn is_empty_but_topic(&self) -> bool {
        self.filters.is_empty_but_topic() && self.limit.is_none()
    }

    /// Makes a request for each of the runs, after a question. A dry run only checks them. Runs of the state `also` are asked for,
    /// too.
    pub(super) async fn carry_out<A, E>(
        &self,
        (scoop, output, consent): (&Scoop, Output, Consent),
        (request, also): (RunRequest, Option<RunPhase>),
        ask: impl Fn(RunId) -> Request<A, E>,
    ) -> Result<Exit, Fault>
    where
        A: Into<Answer> + Send + 'static,
        E: From<RuntimeError> + Into<OperateError> + Send + 'static,
    {
        let is_dry_run = consent.is_dry_run();
        let chosen = self.choose((scoop, output), (request, also), is_dry_run).await?;
        if chosen.runs.is_empty() {
            self.filters.check_names(scoop).await?;
            match (output.json, is_dry_run) {
                (true, true) => {}
                (true, false) => Tally::default().ended(0).write(output, false)?,
                (false, _) => output.remark("no such runs"),
            }
            return Ok(Exit::Success);
        }
        if !consent.to(output, &format!("{request} {}", chosen.described()))? && !is_dry_run {
            return Ok(Exit::Success);
        }
        let mut tally = Tally::default();
        let ask = async |run: RunId| -> Result<Answer, OperateError> {
            let request = if is_dry_run { ask(run).dry_run() } else { ask(run) };
            Ok(request.await.map_err(Into::into)?.into())
        };
        let asked = ask_all(&chosen, ask, |run, answer| {
            if is_dry_run && request == RunRequest::Cancel {
                tally.count_cancellation(&chosen, run, answer);
            } else {
                tally.count(run.1.hierarchy, answer);
            }
        });
        let asked = asked.await;
        let ended = tally.ended(chosen.runs.len());
        let written = if is_dry_run { ended.write_checked(output) } else { ended.write(output, chosen.more) };
        asked?;
        ended.exit().despite(written)
    }

    /// Lists the runs. In a dry run they are written, too.
    async fn choose(
        &self,
        (scoop, output): (&Scoop, Output),
        (request, also): (RunRequest, Option<RunPhase>),
        is_dry_run: bool,
    ) -> Result<Chosen, Fault> {
        let mut query = self.filters.query(scoop);
        if self.filters.state.is_empty() {
            query = phases_for(request).chain(also).fold(query, |query, phase| query.state(phase));
        }
        let limit = self.limit.map_or(usize::MAX, |limit| limit as usize);
        let mut chosen = Chosen::default();
        // A relaunch is about the hierarchy.
        let mut relaunched = BTreeSet::new();
        let fits = |run: &RunSummary| run.requests().any(|it| it == request) || also == Some(run.phase);
        let mut rows = Rows::new(&HEADER);
        let progress = Progress::begin("looking for runs");
        let show = progress.teller();
        let mut cursor = None;
        loop {
            let page = query.clone().page(PAGE_MAX).after(cursor).await?;
            for run in page.runs.iter().filter(|run| fits(run)) {
                if request == RunRequest::Relaunch && !relaunched.insert(run.hierarchy) {
                    continue;
                }
                if chosen.runs.len() == limit {
                    chosen.more = true;
                    break;
                }
                // One that ends between two pages may be on both.
                let parent = run.parent.map(RunId::uuid);
                let known =
                    chosen.runs.insert(run.run.uuid(), ChosenRun { hierarchy: run.hierarchy, parent });
                if known.is_some() {
                    continue;
                }
                *chosen.groups.entry((run.handler.clone(), run.phase)).or_default() += 1;
                match (is_dry_run, output.json) {
                    (true, true) => output.record(run)?,
                    (true, false) => rows.add(row(run)),
                    (false, _) => {}
                }
            }
            show(format!("looking for runs: {} so far", chosen.runs.len()));
            cursor = page.next;
            if cursor.is_none() || chosen.more {
                break;
            }
        }
        drop(progress);
        if !rows.is_empty() {
            output.table(rows.unwrapped(0).unwrapped(3))?;
        }
        Ok(chosen)
    }
}

/// Makes the request for one run after the other, until the user interrupts that.
async fn ask_all(
    chosen: &Chosen,
    ask: impl AsyncFn(RunId) -> Result<Answer, OperateError>,
    mut count: impl FnMut((Uuid, &ChosenRun), Answer),
) -> Result<(), Fault> {
    let progress = Progress::of(chosen.runs.len() as u64, "runs");
    let mut interrupted = pin!(interrupted());
    for (id, run) in &chosen.runs {
        let stop = tokio::select! {
            biased;
            () = &mut interrupted => true,
            () = std::future::ready(()) => false,
        };
        if stop {
            break;
        }
        let answer = match ask(RunId::from(*id)).await {
            Err(error) if error.is_not_found() => Answer::gone(),
            Err(error) if error.is_damaged() => Answer::damaged(&error),
            answer => answer?,
        };
        count((*id, run), answer);
        progress.advance();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen_run(hierarchy: u128, parent: Option<u128>) -> ChosenRun {
        let hierarchy = HierarchyId::from(Uuid::from_u128(hierarchy));
        ChosenRun { hierarchy, parent: parent.map(Uuid::from_u128) }
    }

    #[test]
    fn dry_run_of_a_cancellation_counts_runs_below_a_cancelled_one_apart() {
        let mut chosen = Chosen::default();
        let runs = [
            (10, chosen_run(1, None), CancelAnswer::Accepted),
            // Below it.
            (11, chosen_run(1, Some(10)), CancelAnswer::Accepted),
            (12, chosen_run(1, Some(11)), CancelAnswer::Accepted),
            // Below a run that is not chosen, perhaps below the first, too.
            (13, chosen_run(1, Some(99)), CancelAnswer::Accepted),
            // Below that one, and so cancelled with it or with the first.
            (14, chosen_run(1, Some(13)), CancelAnswer::Accepted),
            // No other run of its hierarchy is chosen before it.
            (20, chosen_run(2, Some(98)), CancelAnswer::Accepted),
            // Its request finds nothing to do anyway.
            (30, chosen_run(3, None), CancelAnswer::AlreadyRequested),
        ];
        let answers: Vec<_> = runs.iter().map(|(id, _, answer)| (Uuid::from_u128(*id), *answer)).collect();
        chosen.runs = runs.into_iter().map(|(id, run, _)| (Uuid::from_u128(id), run)).collect();
        let mut tally = Tally::default();
        for (id, answer) in answers {
            tally.count_cancellation(&chosen, (id, &chosen.runs[&id]), answer.into());
        }
        let ended = tally.ended(7);
        assert_eq!((ended.accepted, ended.covered, ended.perhaps_covered, ended.left), (2, 3, 1, 0));
        let refused: Vec<_> = ended.refused.iter().map(|((answer, _), runs)| (*answer, *runs)).collect();
        assert_eq!(refused, [("already requested", 1)]);
    }

    #[test]
    fn question_names_a_few_groups_and_counts_the_others() {
        let mut chosen = Chosen::default();
        for (number, saga) in ["a", "b", "c", "d", "e", "f", "g"].into_iter().enumerate() {
            chosen.runs.insert(Uuid::from_u128(number as u128), chosen_run(1, None));
            chosen.groups.insert((saga.into(), RunPhase::Stuck), 1);
        }
        let expected = "7 runs: 1 of `a` (stuck), 1 of `b` (stuck), 1 of `c` (stuck), 1 of `d` (stuck), \
                        1 of `e` (stuck), 2 others";
        assert_eq!(chosen.described(), expected);
    }

    #[test]
    fn refusals_with_different_texts_are_counted_one_by_one() {
        let mut tally = Tally::default();
        for text in ["run 1 is damaged", "run 2 is damaged", "run 2 is damaged"] {
            tally.refuse(Answer { name: "damaged", text: text.into(), kind: AnswerKind::Refused });
        }
        let refused: Vec<_> = tally.ended(3).refused.into_iter().collect();
        let expected = [("run 1 is damaged", 1), ("run 2 is damaged", 2)];
        assert_eq!(refused, expected.map(|(text, runs)| (("damaged", text.to_owned()), runs)));
    }

    #[test]
    fn refusal_that_another_run_of_the_hierarchy_settles_is_none() {
        let [one, other] = [1, 2].map(|id| HierarchyId::from(Uuid::from_u128(id)));
        let mut tally = Tally::default();
        for (hierarchy, answer) in [
            (one, RepairAnswer::FailedBelow),
            (one, RepairAnswer::Accepted),
            (one, RepairAnswer::StillRunning),
            (other, RepairAnswer::FailedBelow),
        ] {
            tally.count(hierarchy, answer.into());
        }
        let ended = tally.ended(5);
        assert_eq!((ended.accepted, ended.covered, ended.left), (1, 1, 1));
        let refused: Vec<_> = ended.refused.iter().map(|((answer, _), runs)| (*answer, *runs)).collect();
        assert_eq!(refused, [("failed below", 1), ("still running", 1)]);
        assert_eq!(ended.exit(), Exit::Failed);
        assert_eq!(Ended { left: 0, ..ended }.exit(), Exit::NotAccepted);
    }
}
