//! The messages that sagas join; see `join_*.sql`.

use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use super::MemoryStore;
use super::launch::RootMessage;
use super::state::State;
use crate::WaitingMember;
use crate::bug::{Bug, is_injected};
use crate::store::join::{Launch, OldestMember, complete, limit};
use crate::store::{ExpiredJoin, JoinSpec, JoinStorage, NewMember};
use crate::util::shown::system_time;

/// A row of `join_member`.
#[derive(Clone, Debug)]
pub(super) struct MemberRow {
    run: Uuid,
    saga: String,
    key: String,
    topic: String,
    message: Uuid,
    payload: Value,
    since: OffsetDateTime,
    expires_at: Option<OffsetDateTime>,
    joined: Option<Uuid>,
}

impl JoinStorage for MemoryStore {
    async fn join(&self, spec: &JoinSpec, member: &NewMember<'_>) -> sqlx::Result<Vec<String>> {
        self.run("join", |state| {
            let NewMember { claim, topic, message, key } = member;
            if state.claimed_under(*claim).is_none() {
                return Ok(vec![]);
            }
            if !state.join_members.iter().any(|it| it.run == claim.id) {
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
                    since: now,
                    expires_at: limit(now, spec.within),
                    joined: None,
                };
                state.join_members.push(row);
            }
            Ok(state.launch_set(spec, key, Launch::IfComplete))
        })
        .await
    }

    async fn withdraw(&self, _: &JoinSpec, _: &str, run: Uuid) -> sqlx::Result<Option<Uuid>> {
        self.run("withdraw", |state| {
            if !is_injected(Bug::KeepWithdrawn) {
                state.join_members.retain(|it| it.run != run || it.joined.is_some());
            }
            Ok(state.join_members.iter().find(|it| it.run == run).and_then(|it| it.joined))
        })
        .await
    }

    async fn expire_join(&self, specs: &[&JoinSpec]) -> sqlx::Result<ExpiredJoin> {
        self.run("expire_join", |state| {
            let waiting = state.join_members.iter().filter(|it| it.joined.is_none());
            let timed = waiting.filter_map(|it| {
                let spec = specs.iter().find(|spec| spec.saga == it.saga)?;
                Some((it.expires_at?, it.key.clone(), *spec))
            });
            let Some((at, key, spec)) = timed.min_by_key(|(at, ..)| *at) else {
                return Ok(ExpiredJoin::default());
            };
            let seconds = (at - state.now()).as_seconds_f64();
            if seconds > 0.0 {
                return Ok(ExpiredJoin { handlers: vec![], seconds: Some(seconds) });
            }
            let handlers = state.launch_set(spec, &key, Launch::AsItIs);
            Ok(ExpiredJoin { handlers, seconds: Some(0.0) })
        })
        .await
    }

    async fn joined(&self, message: Uuid) -> sqlx::Result<Vec<Uuid>> {
        self.run("joined", |state| {
            let joined = state.join_members.iter().filter(|it| it.message == message);
            let mut joined: Vec<_> = joined.filter_map(|it| Some((it.saga.clone(), it.joined?))).collect();
            joined.sort_unstable();
            Ok(joined.into_iter().map(|(_, root)| root).collect())
        })
        .await
    }

    async fn waiting_members(&self, limit: i64) -> sqlx::Result<Vec<WaitingMember>> {
        self.run("waiting_members", |state| {
            let waiting = state.join_members.iter().filter(|it| it.joined.is_none());
            let shown = waiting.take(usize::try_from(limit).unwrap_or(0)).map(|it| WaitingMember {
                saga: it.saga.clone(),
                key: it.key.clone(),
                topic: it.topic.clone(),
                message: it.message,
                since: system_time(it.since),
                until: it.expires_at.map(system_time),
            });
            Ok(shown.collect())
        })
        .await
    }
}

impl State {
    /// Launches the hierarchy of the oldest messages of a key, if it is to be. Returns its handlers.
    fn launch_set(&mut self, spec: &JoinSpec, key: &str, launch: Launch) -> Vec<String> {
        // The rows are in the order of their times.
        let oldest = spec.topics.iter().filter_map(|topic| {
            let mut waiting = self.join_members.iter().filter(|it| it.joined.is_none());
            waiting.find(|it| it.saga == spec.saga && it.key == key && it.topic == *topic)
        });
        let oldest: Vec<_> = oldest
            .map(|it| OldestMember { run: it.run, topic: it.topic.clone(), payload: it.payload.clone() })
            .collect();
        let Some(message) = complete(spec, key, &oldest, launch) else { return vec![] };
        for row in &mut self.join_members {
            let is_joined = oldest.iter().any(|member| member.run == row.run);
            if is_joined && !is_injected(Bug::JoinTwice) {
                row.joined = Some(message.root);
            }
        }
        self.launch([RootMessage::from(&message)].into_iter(), None).handlers
    }
}
