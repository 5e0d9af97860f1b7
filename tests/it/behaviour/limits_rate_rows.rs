//! Rows of rates: idle ones, and those that another program has written.

use std::time::{Duration, SystemTime};

use scoop::Handle;
use scoop::operate::WaitKind;

use super::*;
use crate::support::{Database, eventually, warnings};

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "rates.mail")]
struct Mail;

#[derive(Default)]
struct Mails;

#[saga(name = "rated-mails", rate("4/300ms"))]
#[subscribes(Mail)]
impl Mails {
    #[step]
    async fn send(&self, _: &mut Scope<'_>, _: &Mail) -> Result<()> {
        Ok(())
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "rates.text")]
struct Text {
    to: usize,
}

#[derive(Default)]
struct Texts;

#[saga(name = "rated-texts", rate("2/300ms", by = to))]
#[subscribes(Text)]
impl Texts {
    #[step]
    async fn send(&self, _: &mut Scope<'_>, _: &Text) -> Result<()> {
        Ok(())
    }
}

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "rates.letter")]
struct Letter {
    house: u32,
}

#[derive(Default)]
struct Letters;

#[saga(name = "rated-letters", rate("1/h", by = house))]
#[subscribes(Letter)]
impl Letters {
    #[step]
    async fn carry(&self, _: &mut Scope<'_>, _: &Letter) -> Result<()> {
        Ok(())
    }
}

/// What another program may write in place of the runs that began; `micros` is the time of the server.
const FORGED: [&str; 9] = [
    "'[[9000000000000000, 9000000000000000, 4]]'",
    "'[[9223372036854775807, 9223372036854775807, 9223372036854775807]]'",
    "'[null, [null, null, null]]'",
    "'null'",
    "'{\"begun\": \"text\"}'",
    "'[[1e400, 1, 1]]'",
    "jsonb_build_array(jsonb_build_array(micros, micros, 9223372036854775807))",
    "jsonb_build_array(jsonb_build_array(micros, micros, -1000000))",
    "(SELECT jsonb_agg(jsonb_build_array(micros, micros + n, 1)) FROM generate_series(1, 20000) n)",
];

/// Writes the row of a key, with this time from which its runs do not count.
async fn forge(db: &Database, (saga, key): (&str, &str), forged: &str, idle_at: &str) {
    db.execute(&format!(
        "INSERT INTO scoop.rate_window AS w (saga, key, begun, has_parked, opens_at, idle_at)
         SELECT '{saga}', '{key}', {forged}, true, 'infinity', '{idle_at}'
         FROM (SELECT (extract(epoch FROM now()) * 1000000)::bigint AS micros) now
         ON CONFLICT (saga, key) DO UPDATE SET begun = excluded.begun, has_parked = excluded.has_parked,
             opens_at = excluded.opens_at, idle_at = excluded.idle_at"
    ))
    .await;
}

/// Checks that all of these runs end, and that no period has more beginnings than this.
async fn end_at_a_rate(all: &[Handle], most: usize, forged: &str) -> Result<()> {
    let mut begun: Vec<SystemTime> = vec![];
    for run in all {
        assert_eq!(run.ends().await?, Outcome::Committed, "{forged}");
        begun.extend(run.tree().await?.roots().iter().filter_map(|run| run.events.first()?.at));
    }
    begun.sort_unstable();
    assert_eq!(begun.len(), all.len(), "{forged}");
    for (earlier, later) in begun.iter().zip(&begun[most..]) {
        let apart = later.duration_since(*earlier)?;
        assert!(apart >= Duration::from_millis(300), "{forged}: {} runs within {apart:?}", most + 1);
    }
    Ok(())
}

async fn keys(db: &Database) -> Vec<String> {
    db.texts("SELECT key::text FROM scoop.rate_window ORDER BY key").await
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_key_of_a_rate_is_deleted() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Letters>().poll_interval(Duration::from_millis(50)).start().await?;
    for house in [7, 8] {
        assert_eq!(scoop.launch(Letter { house }).await?.ends().await?, Outcome::Committed);
    }
    assert_eq!(keys(&db).await, ["7", "8"]);
    db.execute("UPDATE scoop.rate_window SET idle_at = now() - interval '1 s' WHERE key = '7'").await;
    eventually("the idle key is deleted", async || keys(&db).await == ["8"]).await;
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_rate_of_a_saga_neither_holds_it_up_nor_admits_more() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Mails>().start().await?;
    for forged in FORGED {
        for idle_at in ["infinity", "-infinity", "now"] {
            forge(&db, ("rated-mails", ""), forged, idle_at).await;
            let all = scoop.launch_all((0..6).map(|_| Mail)).await?;
            end_at_a_rate(&all, 4, forged).await?;
        }
    }
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_rate_of_a_key_neither_holds_it_up_nor_admits_more() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Texts>().poll_interval(Duration::from_millis(100)).start().await?;
    for (to, forged) in FORGED.into_iter().enumerate() {
        forge(&db, ("rated-texts", &to.to_string()), forged, "infinity").await;
        let all = scoop.launch_all((0..3).map(|_| Text { to })).await?;
        end_at_a_rate(&all, 2, forged).await?;
    }
    scoop.shutdown().await?;
    Ok(())
}

/// A window that cannot be read stands for runs that did begin.
#[tokio::test(flavor = "multi_thread")]
async fn runs_that_began_count_although_their_times_are_lost() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Letters>().poll_interval(Duration::from_millis(50)).start().await?;
    assert_eq!(scoop.launch(Letter { house: 7 }).await?.ends().await?, Outcome::Committed);
    db.execute("UPDATE scoop.rate_window SET begun = 'null'").await;
    let second = scoop.launch(Letter { house: 7 }).await?;
    eventually("the second letter waits for the rate", async || {
        scoop
            .operate()
            .runs()
            .list()
            .waiting_for(WaitKind::Limit)
            .await
            .is_ok_and(|page| page.runs.len() == 1)
    })
    .await;
    db.execute("UPDATE scoop.rate_window SET begun = 'null', idle_at = now()").await;
    assert_eq!(second.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_that_the_database_refuses_is_reported_with_its_saga_and_holds_up_no_other() -> Result<()> {
    const REFUSED: &str = "event=\"claim_refused\"";
    let db = Database::new().await;
    assert_eq!(warnings(REFUSED), [""; 0]);
    let scoop = db.scoop().only::<Mails>().only::<Texts>().start().await?;
    db.execute("ALTER TABLE scoop.rate_window ADD CONSTRAINT no_mails CHECK (saga <> 'rated-mails')").await;
    let mail = scoop.launch(Mail).await?;
    eventually("the refusal is reported", async || !warnings(REFUSED).is_empty()).await;
    for refused in warnings(REFUSED) {
        for part in ["saga=\"rated-mails\"", "no_mails", "claim of runs of saga `rated-mails` refused"] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
    }
    assert_eq!(scoop.launch(Text { to: 1 }).await?.ends().await?, Outcome::Committed);
    db.execute("ALTER TABLE scoop.rate_window DROP CONSTRAINT no_mails").await;
    assert_eq!(mail.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn suspect_whose_claim_the_database_refuses_holds_up_no_suspect_of_another_saga() -> Result<()> {
    let db = Database::new().await;
    db.scoop().only::<Mails>().only::<Texts>().start().await?.shutdown().await?;
    db.execute("ALTER TABLE scoop.rate_window ADD CONSTRAINT no_mails CHECK (saga <> 'rated-mails')").await;
    let mail = db.client().launch(Mail).await?;
    let text = db.client().launch(Text { to: 1 }).await?;
    // The refused one has been ready longest.
    db.execute(
        "UPDATE scoop.run SET tries = ROW(1, 0, 2, NULL),
             ready_at = ready_at - CASE handler WHEN 'rated-mails' THEN interval '1 hour' ELSE '0' END
         WHERE handler IN ('rated-mails', 'rated-texts')",
    )
    .await;
    let scoop = db.scoop().only::<Mails>().only::<Texts>().start().await?;
    assert_eq!(text.ends().await?, Outcome::Committed);
    db.execute("ALTER TABLE scoop.rate_window DROP CONSTRAINT no_mails").await;
    assert_eq!(mail.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}
