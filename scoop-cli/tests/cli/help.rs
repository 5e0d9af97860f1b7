//! The texts of the help, in a file for reading.

use expect_test::expect_file;

use crate::support::{program, ran};

/// The commands in the help of the program.
fn commands(main: &str) -> Vec<&str> {
    let commands =
        main.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // A line that begins later continues the text of the one before.
    let commands = commands.filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' '));
    commands.filter_map(|line| line.split(' ').next()).filter(|command| *command != "help").collect()
}

#[tokio::test]
async fn help_texts_are_those_of_the_file() {
    let main = ran(program(&["--help"]), &mut vec![]).await.stdout;
    let mut all = main.clone();
    for command in commands(&main) {
        let help = ran(program(&[command, "--help"]), &mut vec![]).await.stdout;
        // The options of all commands are in the help of the program.
        let own = help.split("\nConnection:").next().unwrap_or_default();
        all += &format!("\n---- scoop {command} --help\n{own}");
    }
    expect_file!["help.txt"].assert_eq(&all);
}

#[tokio::test]
async fn completions_of_each_shell_name_all_commands() {
    let main = ran(program(&["--help"]), &mut vec![]).await.stdout;
    assert!(commands(&main).len() > 25, "{main}");
    for (shell, part) in [
        ("bash", "complete -F"),
        ("elvish", "edit:completion:arg-completer[scoop]"),
        ("fish", "complete -c scoop"),
        ("powershell", "Register-ArgumentCompleter"),
        ("zsh", "#compdef scoop"),
    ] {
        let ran = ran(program(&["completions", shell]), &mut vec![]).await;
        assert!(ran.code == 0 && ran.stdout.contains(part), "{shell}: {}", ran.stdout);
        let words: std::collections::BTreeSet<_> =
            ran.stdout.split(|char: char| !char.is_ascii_alphanumeric()).collect();
        for command in commands(&main) {
            assert!(words.contains(command), "{shell} does not name {command}");
        }
    }
}

#[tokio::test]
async fn manual_has_a_page_for_each_command() {
    let main = ran(program(&["--help"]), &mut vec![]).await.stdout;
    let page = ran(program(&["man"]), &mut vec![]).await;
    assert!(page.code == 0 && page.stdout.contains(".TH scoop 1"), "{}", page.stdout);
    let dir = std::env::temp_dir().join(format!("scoop-man-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    assert_eq!(ran(program(&["man", "--dir", dir.to_str().unwrap()]), &mut vec![]).await.code, 0);
    for command in commands(&main) {
        assert!(page.stdout.contains(&format!("scoop\\-{command}(1)")), "{command}");
        let of_command = std::fs::read_to_string(dir.join(format!("scoop-{command}.1"))).unwrap();
        assert!(of_command.contains(&format!(".TH scoop-{command} 1")), "{of_command}");
        assert!(of_command.contains(".SH OPTIONS") && of_command.contains("database\\-url"), "{of_command}");
    }
    let explain = std::fs::read_to_string(dir.join("scoop-explain.1")).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(explain.contains("what would end that"), "{explain}");
}

/// In the page about the command line.
#[tokio::test]
async fn documented_lines_install_completions_and_manual() {
    let page = include_str!("../../../docs/reference/command_line.md");
    let block = page.split("```").find(|block| block.contains("\nscoop completions ")).unwrap();
    let lines = block.strip_prefix("text\n").unwrap();
    let loads = ". ~/.local/share/bash-completion/completions/scoop; complete -p scoop";
    let home = std::env::temp_dir().join(format!("scoop-home-{}", std::process::id()));
    std::fs::create_dir_all(&home).unwrap();
    let folder = std::path::Path::new(env!("CARGO_BIN_EXE_scoop")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut shell = tokio::process::Command::new("bash");
    shell.args(["-euc", &format!("{lines}{loads}")]).env("HOME", &home).env("PATH", path);
    let ran = ran(shell, &mut vec![]).await;
    let sizes =
        [".config/fish/completions/scoop.fish", ".zfunc/_scoop", ".local/share/man/man1/scoop-doctor.1"]
            .map(|file| std::fs::metadata(home.join(file)).map_or(0, |file| file.len()));
    std::fs::remove_dir_all(&home).unwrap();
    assert!(ran.code == 0 && ran.stdout.contains("-F _scoop scoop"), "{ran:?}");
    assert!(sizes.iter().all(|size| *size > 500), "{sizes:?}");
}
