//! Cancels a hierarchy, or a part of it. The unfinished runs are rolled back: a waiting run at once, a running
//! step when it ends or when it reacts to its stop signal. The parent of a cancelled part handles that like any
//! other failure of a child.
//!
//! ```text
//! cargo run -p examples --example cancellation
//! ```

use std::time::Duration;

use scoop::Handle;
use scoop::prelude::*;
use scoop::requests::CancelAnswer;
use scoop::tree::{RunInfo, RunState};

#[derive(Message, Serialize, Deserialize)]
struct FilmShot {
    scenes: u32,
}

#[derive(Message, Serialize, Deserialize)]
struct RenderScene {
    scene: u32,
}

#[derive(Default)]
struct FilmStudio;

#[saga]
#[subscribes(FilmShot)]
impl FilmStudio {
    #[step(on_child_failure = do_without)]
    async fn render(&self, scope: &mut Scope<'_>, film: &FilmShot) -> Result<()> {
        for scene in 1..=film.scenes {
            scope.launch(RenderScene { scene }).await?;
        }
        Ok(())
    }

    /// Not called if the film itself is cancelled.
    async fn do_without(&self, _: &mut Scope<'_>, _: &FilmShot, why: &Failure) -> Result<()> {
        println!("  we do without: {}", why.root_causes()[0].message);
        Ok(())
    }

    #[step]
    async fn premiere(&self, _: &mut Scope<'_>, _: &FilmShot) -> Result<()> {
        println!("  the film is out");
        Ok(())
    }
}

#[derive(Default)]
struct RenderFarm;

#[saga]
#[subscribes(RenderScene)]
impl RenderFarm {
    #[step(rollback = scrap)]
    async fn reserve(&self, _: &mut Scope<'_>, _: &RenderScene) -> Result<()> {
        Ok(())
    }

    #[step]
    async fn compute(&self, scope: &mut Scope<'_>, work: &RenderScene) -> Result<()> {
        let stop = scope.stop_signal();
        let hours = if work.scene == 1 { 0 } else { 100 };
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(hours * 3600)) => Ok(()),
            // Fails with the source and the reason of the cancellation. Tidying up and returning would do as
            // well.
            () = stop.raised() => scope.check().await,
        }
    }

    async fn scrap(&self, _: &mut Scope<'_>, work: &RenderScene, _: &Failure) -> Result<()> {
        println!("  scene {} is scrapped", work.scene);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let scoop = Scoop::builder().embedded().start().await?;

    println!("one scene is too much");
    let film = scoop.launch(FilmShot { scenes: 2 }).await?;
    let scene = running(&film, 1).await?;
    let answer = scoop.cancel(scene.id(), "too many explosions").source("the producer").await?;
    assert_eq!(answer, CancelAnswer::Accepted);
    assert_eq!(film.wait().await?, Outcome::Committed);
    let tree = film.tree().await?;
    let kept = tree.roots()[0].children.iter().filter(|scene| scene.state == RunState::Committed);
    assert_eq!(kept.count(), 1, "{tree}");

    println!("all of it is too much");
    let film = scoop.launch(FilmShot { scenes: 3 }).await?;
    running(&film, 2).await?;
    assert_eq!(scoop.cancel(film.id(), "no money left").await?, CancelAnswer::Accepted);
    let Outcome::RolledBack(why) = film.wait().await? else { panic!("{}", film.tree().await?) };
    assert!(why.report().contains("no money left"), "{}", why.report());
    assert_eq!(scoop.cancel(film.id(), "really").await?, CancelAnswer::AlreadyRequested);

    scoop.shutdown().await?;
    Ok(())
}

/// Waits until exactly so many scenes are being computed, and the others are done. Returns one of them.
async fn running(film: &Handle, scenes: usize) -> Result<RunInfo> {
    loop {
        let tree = film.tree().await?;
        let children = tree.roots().iter().flat_map(|film| &film.children);
        let (done, open): (Vec<_>, Vec<_>) = children.partition(|scene| scene.state == RunState::Committed);
        let computing = |scene: &RunInfo| scene.state == RunState::Running && scene.events.len() > 1;
        if done.len() == 1 && open.len() == scenes && open.iter().all(|scene| computing(scene)) {
            return Ok(open[0].clone());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
