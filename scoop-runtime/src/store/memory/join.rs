//! The messages that sagas join; see `join_*.sql`.

use std::time::Duration;

use time::OffsetDateTime;
use uuid::Uuid;

use super::MemoryStore;
use super::launch::RootMessage;
use super::state::State;
use crate::store::join::{LaunchedSet, SetMember, SetPolicy, set_message};
use crate::store::memory::row::{JoinMembers, JoinedRow, MemberRow};
use crate::store::{ExpiredJoin, JoinResult, JoinSpec, JoinStorage, NewMember, Withdrawal};

impl MemberRow {
    fn member(&self) -> SetMember {
        SetMember {
            run: self.run,
            topic: self.topic.clone(),
            payload: self.payload.clone(),
            traceparent: self.traceparent.clone(),
        }
    }
}

impl JoinStorage for MemoryStore {
    async fn join(&self, spec: &JoinSpec, member: &NewMember<'_>) -> sqlx::Result<JoinResult> {
        self.run("join", |state| {
            let NewMember { claim, topic, message, key, traceparent } = member;
            if state.claimed_under(*claim).is_none() {
                return Ok(JoinResult::NotClaimed);
            }
            if !state.join_members.has(claim.id) {
                let now = state.now();
                let record = state.hierarchy(claim.root).map(|hierarchy| &hierarchy.record);
                let payload = record.and_then(|record| record.messages.get(message));
                let row = MemberRow {
                    run: claim.id,
                    saga: spec.saga.clone(),
                    key: (*key).to_owned(),
                    topic: (*topic).to_owned(),
                    message: *message,
                    payload: payload.map(|message| message.payload.clone()).unwrap_or_default(),
                    expires_at: limit(now, spec.within),
                    traceparent: traceparent.clone(),
                };
                state.join_members.waiting.push(row);
            }
            let oldest = state.join_members.oldest(spec, key);
            let handlers = state.launch_set(spec, key, &oldest, SetPolicy::IfComplete);
            Ok(JoinResult::Recorded(LaunchedSet { handlers, refused: vec![] }))
        })
        .await
    }

    async fn withdraw(&self, _: &JoinSpec, _: &str, run: Uuid) -> sqlx::Result<Withdrawal> {
        self.run("withdraw", |state| {
            state.join_members.waiting.retain(|it| it.run != run);
            Ok(Withdrawal::Withdrawn { joined: state.join_members.joined.get(&run).map(|it| it.root) })
        })
        .await
    }

    async fn expire_join(&self, specs: &[&JoinSpec]) -> sqlx::Result<ExpiredJoin> {
        self.run("expire_join", |state| {
            let timed = state.join_members.waiting.iter().filter_map(|it| {
                let spec =
                    specs.iter().find(|spec| spec.saga == it.saga && spec.topics.contains(&&*it.topic))?;
                Some((it.expires_at?, it.run, *spec))
            });
            let Some((at, run, spec)) = timed.min_by_key(|(at, ..)| *at) else {
                return Ok(ExpiredJoin::default());
            };
            let seconds = (at - state.now()).as_seconds_f64();
            if seconds > 0.0 {
                return Ok(ExpiredJoin { launched: LaunchedSet::default(), seconds: Some(seconds) });
            }
            let (key, members) = state.join_members.overdue(spec, run, state.now());
            let handlers = state.launch_set(spec, &key, &members, SetPolicy::AsItIs);
            let launched = LaunchedSet { handlers, refused: vec![] };
            Ok(ExpiredJoin { launched, seconds: Some(0.0) })
        })
        .await
    }

    async fn joined(&self, message: Uuid) -> sqlx::Result<Vec<Uuid>> {
        self.run("joined", |state| {
            let joined = state.join_members.joined.values().filter(|it| it.message == message);
            let mut joined: Vec<_> = joined.map(|it| (it.saga.clone(), it.root)).collect();
            joined.sort_unstable();
            Ok(joined.into_iter().map(|(_, root)| root).collect())
        })
        .await
    }
}

#[cfg(feature = "simulation")]
impl MemoryStore {
    /// The keys and topics of the messages that wait.
    pub(crate) fn waiting_members(&self) -> Vec<(String, String)> {
        self.lock().join_members.waiting.iter().map(|row| (row.key.clone(), row.topic.clone())).collect()
    }
}

impl JoinMembers {
    /// The oldest waiting messages of a key.
    fn oldest(&self, spec: &JoinSpec, key: &str) -> Vec<SetMember> {
        let oldest = spec.topics.iter().filter_map(|topic| self.first(&spec.saga, key, topic));
        oldest.map(MemberRow::member).collect()
    }

    /// The key of an overdue message, and the members of its set (`join_overdue.sql`).
    fn overdue(&self, spec: &JoinSpec, run: Uuid, now: OffsetDateTime) -> (String, Vec<SetMember>) {
        let Some(overdue) = self.waiting.iter().find(|it| it.run == run) else {
            return (String::new(), vec![]);
        };
        let first = self.first(&spec.saga, &overdue.key, &overdue.topic);
        let is_first = first.and_then(|first| first.expires_at).is_some_and(|at| at <= now);
        let members = if is_first { self.oldest(spec, &overdue.key) } else { vec![overdue.member()] };
        (overdue.key.clone(), members)
    }

    fn first(&self, saga: &str, key: &str, topic: &str) -> Option<&MemberRow> {
        self.waiting.iter().find(|it| it.saga == saga && it.key == key && it.topic == topic)
    }

    fn has(&self, run: Uuid) -> bool {
        self.joined.contains_key(&run) || self.waiting.iter().any(|row| row.run == run)
    }
}

impl State {
    /// Launches the hierarchy of these messages of a key, if it is to be. Returns its handlers.
    fn launch_set(
        &mut self,
        spec: &JoinSpec,
        key: &str,
        members: &[SetMember],
        policy: SetPolicy,
    ) -> Vec<String> {
        let Some(message) = set_message(spec, key, members, policy) else { return vec![] };
        let is_member = |row: &mut MemberRow| members.iter().any(|member| member.run == row.run);
        let members = self.join_members.waiting.extract_if(.., is_member);
        let joined = members
            .map(|row| (row.run, JoinedRow { message: row.message, saga: row.saga, root: message.root }));
        self.join_members.joined.extend(joined);
        self.launch([RootMessage::from(&message)].into_iter(), None).handlers
    }
}

/// When the wait of a member ends that begins now.
fn limit(now: OffsetDateTime, within: Option<Duration>) -> Option<OffsetDateTime> {
    let within = time::Duration::try_from(within?).unwrap_or(time::Duration::MAX);
    Some(now.saturating_add(within))
}
