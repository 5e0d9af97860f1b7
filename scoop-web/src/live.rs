//! Live updates: tells browsers that a page has changed, by server-sent events. One stream of the library serves all.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, stream};
use scoop_operate::OperateExt as _;
use scoop_runtime::internal::shutdown_begun;
use scoop_runtime::{HierarchyId, Scoop};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{self, Receiver, WeakSender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::SharedWeb;
use crate::pages::Fields;

/// The maximum number of browsers that follow.
const FOLLOWERS_MAX: usize = 100;

/// The number of events that a browser may be behind. With more it is told that something has changed.
const BEHIND_MAX: usize = 1_024;

/// The least time between two messages to a browser.
const REST: Duration = Duration::from_millis(500);

/// The time after which the browser is told to read again in any case: what happened before the stream began.
const FIRST: Duration = Duration::from_secs(1);

/// The time after which a stream ends. The browser begins another.
const LIFETIME: Duration = Duration::from_secs(60);

/// The time until a failed look is repeated.
const RETRY: Duration = Duration::from_secs(5);

/// The stream of events that all browsers share. It exists while one of them follows.
pub(crate) struct Live {
    scoop: Scoop,
    changed: Mutex<Option<WeakSender<HierarchyId>>>,
    permits: Arc<Semaphore>,
    stopped: CancellationToken,
}

impl Live {
    pub(crate) fn new(scoop: Scoop) -> Self {
        let permits = Arc::new(Semaphore::new(FOLLOWERS_MAX));
        Self { scoop, changed: Mutex::new(None), permits, stopped: CancellationToken::new() }
    }

    /// Ends all streams when this is cancelled.
    pub(crate) fn stopped(&self) -> CancellationToken {
        self.stopped.clone()
    }

    /// The changed hierarchies from now on, about.
    fn follow(&self) -> Receiver<HierarchyId> {
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = changed.as_ref().and_then(WeakSender::upgrade) {
            return sender.subscribe();
        }
        let (sender, receiver) = broadcast::channel(BEHIND_MAX);
        *changed = Some(sender.downgrade());
        let (scoop, stopped) = (self.scoop.clone(), self.stopped.clone());
        tokio::spawn(async move {
            let mut events = scoop.operate().events().without_failures().follow();
            loop {
                tokio::select! {
                    event = events.next() => match event {
                        // Without a receiver the next branch ends the loop.
                        Some(Ok(event)) => drop(sender.send(event.hierarchy)),
                        Some(Err(error)) => {
                            tracing::warn!(%error, "the web page cannot follow events");
                            tokio::time::sleep(RETRY).await;
                        }
                        None => break,
                    },
                    () = sender.closed() => break,
                    () = stopped.cancelled() => break,
                }
            }
        });
        receiver
    }
}

/// A browser that follows.
struct Follower {
    changed: Receiver<HierarchyId>,
    hierarchy: Option<HierarchyId>,
    /// When it is told in any case; `None` if it was.
    first: Option<Instant>,
    /// No message before this.
    rests_until: Instant,
    ends: Instant,
    /// The end of the server, or the begin of the shutdown of the program.
    stops: BoxFuture<'static, ()>,
    _permit: OwnedSemaphorePermit,
}

impl Follower {
    /// Waits for the next change; `None` at the end of the stream.
    async fn next(&mut self) -> Option<()> {
        tokio::select! {
            () = tokio::time::sleep_until(self.ends) => return None,
            () = &mut self.stops => return None,
            () = tokio::time::sleep_until(self.first.unwrap_or(self.ends)) => self.first = None,
            is_changed = Self::change(&mut self.changed, self.hierarchy) => is_changed.then_some(())?,
        }
        // More changes of this time belong to the same message.
        tokio::time::sleep_until(self.rests_until).await;
        self.changed = self.changed.resubscribe();
        self.rests_until = Instant::now() + REST;
        Some(())
    }

    /// Waits for a change that concerns it; false if there will be none.
    async fn change(changed: &mut Receiver<HierarchyId>, hierarchy: Option<HierarchyId>) -> bool {
        loop {
            match changed.recv().await {
                Ok(changed) if hierarchy.is_none_or(|own| own == changed) => return true,
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => return true,
                Err(RecvError::Closed) => return false,
            }
        }
    }
}

/// Tells the browser about changes of one hierarchy, or of all.
pub(crate) async fn stream(State(web): State<SharedWeb>, RawQuery(query): RawQuery) -> Response {
    let fields = Fields::of(query.as_deref().unwrap_or_default());
    let hierarchy = match fields.last("hierarchy").map(str::parse).transpose() {
        Ok(hierarchy) => hierarchy,
        Err(_) => return StatusCode::BAD_REQUEST.into_response(),
    };
    let Ok(permit) = web.live.permits.clone().try_acquire_owned() else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let (stopped, shutdown) = (web.live.stopped(), shutdown_begun(&web.scoop));
    let stops = async move {
        tokio::select! {
            () = stopped.cancelled() => {}
            () = shutdown => {}
        }
    };
    let now = Instant::now();
    let follower = Follower {
        changed: web.live.follow(),
        hierarchy,
        first: Some(now + FIRST),
        rests_until: now,
        ends: now + LIFETIME,
        stops: stops.boxed(),
        _permit: permit,
    };
    let events = stream::unfold(follower, async |mut follower| {
        follower.next().await?;
        // Browsers drop an event without data.
        Some((Ok::<_, Infallible>(Event::default().event("changed").data("changed")), follower))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn change_of_another_hierarchy_is_not_told() {
        let [own, other] = [1, 2].map(|id| HierarchyId::from(Uuid::from_u128(id)));
        let (sender, _) = broadcast::channel(BEHIND_MAX);
        let [mut of_own, mut of_other, mut of_all] = [(); 3].map(|()| sender.subscribe());
        sender.send(other).unwrap();
        drop(sender);
        assert!(!Follower::change(&mut of_own, Some(own)).await, "the end of the stream");
        assert!(Follower::change(&mut of_other, Some(other)).await);
        assert!(Follower::change(&mut of_all, None).await);
    }
}
