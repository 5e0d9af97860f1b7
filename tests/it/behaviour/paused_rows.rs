//! Pauses in forged rows.

use scoop::pauses::PauseTarget;

use super::*;
use crate::support::Database;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "forged_pause.parcel")]
struct Parcel;

#[derive(Default)]
struct Parcels;

#[saga(name = "forged-pause-parcels")]
#[subscribes(Parcel)]
impl Parcels {
    #[step]
    async fn send(&self, _: &mut Scope<'_>, _: &Parcel) -> Result<()> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_texts_are_cut() -> Result<()> {
    let db = Database::new().await;
    let scoop = db.scoop().only::<Parcels>().start().await?;
    let parcels = PauseTarget::handler("forged-pause-parcels");
    scoop.operate().pauses().pause(parcels.clone()).reason("an audit").source("ann").await?;
    db.execute("UPDATE scoop.pause SET reason = repeat('x', 1000000), source = repeat('y', 1000000)").await;
    let parcel = scoop.launch(Parcel).await?;
    let explained = scoop.operate().runs().explain(parcel.id()).await?;
    let expected = (Some("x".repeat(1_000)), "y".repeat(1_000));
    let (listed, tree) = (scoop.operate().pauses().list().await?, parcel.tree().await?);
    for pauses in [&listed, &tree.roots()[0].pauses, &explained.runs[0].pauses] {
        assert_eq!((&pauses[0].reason, &pauses[0].source), (&expected.0, &expected.1));
    }
    let ended = scoop.operate().pauses().resume(&parcels).await?.expect("it was paused");
    assert_eq!((ended.reason, ended.source), expected);
    db.execute("UPDATE scoop.ended_pause SET ended_reason = reason, ended_by = source").await;
    let ended = scoop.operate().pauses().ended().limit(1).await?.remove(0);
    assert_eq!((ended.end_reason, ended.ended_by), (expected.0.clone(), Some(expected.1.clone())));
    assert_eq!((ended.pause.reason, ended.pause.source), expected);
    assert_eq!(parcel.ends().await?, Outcome::Committed);
    scoop.shutdown().await?;
    Ok(())
}
