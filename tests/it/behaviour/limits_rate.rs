//! Limits of how many runs begin within a period.

use std::time::{Duration, SystemTime};

use scoop::Handle;
use scoop::operate::{LimitKey, WaitKind, WaitReason};

use super::*;
use crate::support::{Database, Notes, eventually};

/// Nothing is found by polling within a test.
const NEVER: Duration = Duration::from_secs(3_600);

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "limits.mail")]
struct Mail;

#[derive(Default)]
struct Mails;

#[saga(name = "limited-mails", rate("4/300ms"))]
#[subscribes(Mail)]
impl Mails {
    #[step]
    async fn send(&self, _: &mut Scope<'_>, _: &Mail) -> Result<()> {
        Ok(())
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "limits.text")]
struct Text {
    to: u32,
    number: u32,
}

#[derive(Clone, Default)]
struct Texts {
    notes: Notes,
}

#[saga(name = "limited-texts", concurrency(1, by = receiver), rate("2/300ms", by = receiver))]
#[subscribes(Text)]
impl Texts {
    #[step]
    async fn send(&self, _: &mut Scope<'_>, text: &Text) -> Result<()> {
        self.notes.add(format!("{}.{}", text.to, text.number));
        Ok(())
    }

    fn receiver(&self, text: &Text) -> String {
        format!("receiver {}", text.to)
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "limits.letter")]
struct Letter {
    house: u32,
}

#[derive(Default)]
struct Letters;

#[saga(name = "limited-letters", rate("1/h", by = house))]
#[subscribes(Letter)]
impl Letters {
    #[step]
    async fn carry(&self, _: &mut Scope<'_>, _: &Letter) -> Result<()> {
        Ok(())
    }
}

/// The same saga in a newer program, with a higher rate.
#[derive(Default)]
struct MoreLetters;

#[saga(name = "limited-letters", rate("2/h", by = house))]
#[subscribes(Letter)]
impl MoreLetters {
    #[step]
    async fn carry(&self, _: &mut Scope<'_>, _: &Letter) -> Result<()> {
        Ok(())
    }
}

/// The same saga without a rate.
#[derive(Default)]
struct FreeLetters;

#[saga(name = "limited-letters")]
#[subscribes(Letter)]
impl FreeLetters {
    #[step]
    async fn carry(&self, _: &mut Scope<'_>, _: &Letter) -> Result<()> {
        Ok(())
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "limits.card")]
struct Card;

#[derive(Default)]
struct Cards;

#[saga(name = "limited-cards", concurrency = 5, rate("2/day"))]
#[subscribes(Card)]
impl Cards {
    #[step]
    async fn print(&self, _: &mut Scope<'_>, _: &Card) -> Result<()> {
        Ok(())
    }
}

/// The times at which these runs began, in their order.
async fn begun(all: &[Handle]) -> Result<Vec<SystemTime>> {
    let mut begun = vec![];
    for run in all {
        let tree = run.tree().await?;
        begun.extend(tree.roots().iter().filter_map(|run| run.events.first()?.at));
    }
    begun.sort_unstable();
    Ok(begun)
}

/// Checks that no period has more than so many of these times.
fn assert_rate(begun: &[SystemTime], most: usize, period: Duration) {
    for (earlier, later) in begun.iter().zip(&begun[most..]) {
        let apart = later.duration_since(*earlier).unwrap();
        assert!(apart >= period, "{} runs within {apart:?}", most + 1);
    }
}

async fn waiting(scoop: &Scoop, count: usize) {
    eventually("runs wait for the rate", async || {
        scoop
            .operate()
            .runs()
            .list()
            .waiting_for(WaitKind::Limit)
            .await
            .is_ok_and(|page| page.runs.len() == count)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_runs_begin_within_the_period_than_the_rate_admits() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Mails>().poll_interval(NEVER).start().await?;
    let all = scoop.launch_all((0..14).map(|_| Mail)).await?;
    for mail in &all {
        assert_eq!(mail.ends().await?, Outcome::Committed);
    }
    let begun = begun(&all).await?;
    assert_eq!(begun.len(), 14);
    assert_rate(&begun, 4, Duration::from_millis(300));
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_of_a_key_with_concurrency_and_rate_begin_in_their_order() -> Result<()> {
    let (db, texts) = (Database::new().await, Texts::default());
    let scoop = db.scoop().only::<Texts>().provide(texts.clone()).poll_interval(NEVER).start().await?;
    let all = scoop.launch_all((0..7).map(|number| Text { to: 1, number })).await?;
    for text in &all {
        assert_eq!(text.ends().await?, Outcome::Committed);
    }
    assert_rate(&begun(&all).await?, 2, Duration::from_millis(300));
    assert_eq!(texts.notes.all(), ["1.0", "1.1", "1.2", "1.3", "1.4", "1.5", "1.6"]);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn backlog_of_a_key_over_its_rate_delays_no_other_key() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Letters>().poll_interval(NEVER).concurrency(2).start().await?;
    let backlog = scoop.launch_all((0..40).map(|_| Letter { house: 7 })).await?;
    for house in 10..20 {
        assert_eq!(scoop.launch(Letter { house }).await?.ends().await?, Outcome::Committed);
    }
    waiting(&scoop, 39).await;
    assert_eq!(backlog[0].ends().await?, Outcome::Committed, "the first of them");
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_waits_for_the_rate_of_its_key_says_so() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Letters>().poll_interval(NEVER).start().await?;
    assert_eq!(scoop.launch(Letter { house: 7 }).await?.ends().await?, Outcome::Committed);
    scoop.launch(Letter { house: 7 }).await?;
    let last = scoop.launch(Letter { house: 7 }).await?;
    waiting(&scoop, 2).await;
    let last = scoop.operate().runs().explain(last.id()).await?;
    let WaitReason::Rate { runs, period, key, opens_at, ahead, queued } = &last.runs[0].reason else {
        panic!("{last}");
    };
    assert_eq!((*runs, *period), (1, Duration::from_secs(3_600)));
    assert_eq!(*key, Some(LimitKey::new("house", "7")));
    assert_eq!((*ahead, *queued), (1, 2));
    assert!(opens_at.is_some_and(|at| at > last.read_at), "{last}");
    let text = last.to_string();
    assert!(text.contains("waits for the rate of `limited-letters` for its key `7` of `house`"), "{text}");
    assert!(
        text.contains("1 run begins within 1 h 0 min, and 1 run is ahead of it in its queue of 2"),
        "{text}"
    );
    assert!(text.contains("The next one may begin at "), "{text}");
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_waits_for_the_rate_of_its_saga_says_so() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Cards>().poll_interval(NEVER).start().await?;
    for card in scoop.launch_all([Card, Card]).await? {
        assert_eq!(card.ends().await?, Outcome::Committed);
    }
    let third = scoop.launch(Card).await?;
    waiting(&scoop, 1).await;
    let third = scoop.operate().runs().explain(third.id()).await?;
    let WaitReason::Rate { runs: 2, key: None, opens_at: Some(at), ahead: 0, queued: 1, .. } =
        &third.runs[0].reason
    else {
        panic!("{third}");
    };
    let left = at.duration_since(third.read_at)?;
    assert!(left > Duration::from_secs(80_000) && left <= Duration::from_secs(86_400), "{left:?}");
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_rate_counts_the_runs_that_began_under_the_former_one() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Letters>().poll_interval(NEVER).start().await?;
    let all = scoop.launch_all((0..4).map(|_| Letter { house: 7 })).await?;
    assert_eq!(all[0].ends().await?, Outcome::Committed);
    waiting(&scoop, 3).await;
    let more = db.scoop().only::<MoreLetters>().poll_interval(NEVER).start().await?;
    waiting(&more, 2).await;
    assert_eq!(more.find(all[1].id()).await?.ends().await?, Outcome::Committed, "the second within the hour");
    assert_eq!(
        more.operate().runs().list().waiting_for(WaitKind::Limit).await?.runs.len(),
        2,
        "the others wait on"
    );
    let free = db.scoop().only::<FreeLetters>().poll_interval(NEVER).start().await?;
    for letter in &all {
        assert_eq!(free.find(letter.id()).await?.ends().await?, Outcome::Committed);
    }
    for scoop in [scoop, more, free] {
        scoop.shutdown().await?;
    }
    Ok(())
}
