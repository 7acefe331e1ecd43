use super::*;
use crate::Error;

fn read(variables: &[(&str, &str)]) -> Result<Launch> {
    let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, v)| (*v).to_owned());
    Launch::read(&find)
}

fn message(variables: &[(&str, &str)]) -> String {
    let error = read(variables).unwrap_err();
    assert!(matches!(error, Error::Env(_)), "{error:?}");
    error.to_string()
}

fn secret_of(launch: &Launch) -> meet::Secret {
    match &launch.meet {
        Meet::Address { secret, .. } => secret.clone(),
        other => panic!("{other}"),
    }
}

const TORCHRUN: &[(&str, &str)] = &[
    ("RANK", "3"),
    ("WORLD_SIZE", "8"),
    ("LOCAL_RANK", "1"),
    ("MASTER_ADDR", "node7"),
    ("MASTER_PORT", "29500"),
    ("TORCHELASTIC_RUN_ID", "none"),
];

const SLURM: &[(&str, &str)] = &[
    ("SLURM_PROCID", "5"),
    ("SLURM_NTASKS", "16"),
    ("SLURM_LOCALID", "2"),
    ("SLURM_JOB_ID", "4711"),
    ("SLURM_STEP_ID", "0"),
    ("SLURM_STEP_NODELIST", "gpu[003-010,12],big5"),
];

fn with<'a>(base: &[(&'a str, &'a str)], more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let kept = base.iter().filter(|(name, _)| !more.iter().any(|(other, _)| other == name));
    kept.chain(more.iter().filter(|(_, value)| !value.is_empty())).copied().collect()
}

#[test]
fn nothing_lists_what_was_looked_for() {
    let message = message(&[]);
    for name in ["FUSEWIRE_RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "World::single()"] {
        assert!(message.contains(name), "{message}");
    }
}

#[test]
fn torchrun_meets_on_the_port_after_its_own() {
    let launch = read(TORCHRUN).unwrap();
    assert_eq!(launch.to_string(), "rank 3 of 8 under torchrun, meeting at node7:29501");
    assert_eq!(launch.local_rank(), Some(1));
    let launch = read(&with(TORCHRUN, &[("FUSEWIRE_PORT", "7000")])).unwrap();
    assert!(launch.to_string().ends_with("node7:7000"));
    let launch = read(&with(TORCHRUN, &[("FUSEWIRE_ADDR", "[fe80::1]:7001")])).unwrap();
    assert!(launch.to_string().ends_with("[fe80::1]:7001"));
}

#[test]
fn a_restarted_torchrun_does_not_meet_its_last_try() {
    let first = secret_of(&read(TORCHRUN).unwrap());
    assert!(first == secret_of(&read(&with(TORCHRUN, &[("RANK", "0")])).unwrap()));
    assert!(first != secret_of(&read(&with(TORCHRUN, &[("TORCHELASTIC_RESTART_COUNT", "1")])).unwrap()));
    let secret = &with(TORCHRUN, &[("FUSEWIRE_TOKEN", "s3cret of 16 characters and more")]);
    assert!(first != secret_of(&read(secret).unwrap()));
}

#[test]
fn torchrun_errors_name_the_variable() {
    assert!(message(&with(TORCHRUN, &[("MASTER_ADDR", "")])).contains("lacks MASTER_ADDR"));
    assert!(message(&with(TORCHRUN, &[("MASTER_PORT", "")])).contains("lacks MASTER_PORT"));
    assert!(message(&with(TORCHRUN, &[("MASTER_PORT", "65535")])).contains("set FUSEWIRE_PORT"));
    assert!(
        message(&with(TORCHRUN, &[("RANK", "8")]))
            .contains("RANK=`8`: it should be below WORLD_SIZE, which is 8")
    );
    assert!(message(&with(TORCHRUN, &[("RANK", "-1")])).contains("RANK=`-1`"));
}

#[test]
fn slurm_meets_on_the_first_host() {
    let launch = read(SLURM).unwrap();
    assert!(launch.to_string().starts_with("rank 5 of 16 under Slurm, meeting at gpu003:"), "{launch}");
    let Meet::Address { port, .. } = launch.meet else { panic!() };
    assert!((20_000..32_000).contains(&port));
    let other = read(&with(SLURM, &[("SLURM_STEP_ID", "1")])).unwrap();
    assert!(secret_of(&other) != secret_of(&launch));
    let step = read(&with(SLURM, &[("SLURM_STEP_NUM_TASKS", "8")])).unwrap();
    assert_eq!(step.size(), 8);
    let fallback = with(SLURM, &[("SLURM_STEP_NODELIST", ""), ("SLURM_NODELIST", "n[1-2]")]);
    assert!(read(&fallback).unwrap().to_string().contains("meeting at n1:"));
    assert!(message(&with(SLURM, &[("SLURM_STEP_NODELIST", "n[")])).contains("SLURM_STEP_NODELIST=`n[`"));
    assert!(message(&with(SLURM, &[("SLURM_STEP_NODELIST", "")])).contains("lacks SLURM_STEP_NODELIST"));
}

#[test]
fn our_own_variables_come_first() {
    let own = [("FUSEWIRE_RANK", "1"), ("FUSEWIRE_WORLD_SIZE", "2"), ("FUSEWIRE_ADDR", "h:9")];
    let launch = read(&with(TORCHRUN, &own)).unwrap();
    assert_eq!((launch.launcher(), launch.rank(), launch.size()), (Launcher::Fusewire, 1, 2));
    assert!(message(&[("FUSEWIRE_RANK", "1")]).contains("lacks FUSEWIRE_WORLD_SIZE"));
    assert!(message(&own[..2]).contains("lacks FUSEWIRE_ADDR"));
    for bad in ["h", "h:", ":9", "h:0", "h:x", "fe80::1:9"] {
        let text = message(&with(&own, &[("FUSEWIRE_ADDR", bad)]));
        assert!(text.contains("host:port"), "{bad}: {text}");
    }
    let file = read(&with(&own, &[("FUSEWIRE_ADDR", ""), ("FUSEWIRE_FILE", "/shared/meet")])).unwrap();
    assert!(file.to_string().ends_with("meeting at the file /shared/meet"));
}

#[test]
fn open_mpi_meets_by_file_on_one_host_and_asks_for_an_address_on_more() {
    let open_mpi: &[(&str, &str)] = &[
        ("OMPI_COMM_WORLD_RANK", "1"),
        ("OMPI_COMM_WORLD_SIZE", "4"),
        ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
        ("PMIX_NAMESPACE", "12345.1"),
    ];
    let launch = read(open_mpi).unwrap();
    assert!(matches!(&launch.meet, Meet::File { path, listen: Some(address) }
            if path.ends_with("openmpi_12345.1") && address.is_loopback()));
    let text = message(&with(open_mpi, &[("OMPI_COMM_WORLD_LOCAL_SIZE", "2")]));
    assert!(text.contains("-x FUSEWIRE_ADDR"), "{text}");
}

#[test]
fn one_rank_needs_no_place() {
    for variables in [
        &[("RANK", "0"), ("WORLD_SIZE", "1")],
        &[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1")],
        &[("FUSEWIRE_RANK", "0"), ("FUSEWIRE_WORLD_SIZE", "1")],
        &[("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")],
    ] {
        let world = read(variables).unwrap().join(&Options::default()).unwrap();
        assert_eq!((world.rank(), world.size(), world.kind()), (0, 1, crate::Kind::Single));
        world.barrier().unwrap();
    }
}

#[test]
fn an_address_that_others_reach_needs_a_token_and_the_message_says_how() {
    for variables in [TORCHRUN, SLURM] {
        let launch = read(&with(variables, &[("FUSEWIRE_PORT", "7000")])).unwrap();
        for rank in 0..2 {
            let started = std::time::Instant::now();
            let error = launch.meet.join(rank, 2, &Options::default()).unwrap_err();
            assert!(matches!(error, Error::Env(EnvError::NoToken { .. })), "{error:?}");
            assert!(started.elapsed().as_secs() < 1);
            let text = error.to_string();
            for part in [
                ":7000, which is not a loopback",
                "export FUSEWIRE_TOKEN=$(od ",
                "\n  torchrun ",
                "\n  srun --export=ALL",
                "\n  mpirun -x FUSEWIRE_TOKEN",
            ] {
                assert!(text.contains(part), "{text}");
            }
        }
    }
}

#[test]
fn a_token_that_can_be_guessed_is_refused_and_not_shown() {
    let text = message(&with(TORCHRUN, &[("FUSEWIRE_TOKEN", "hunter2")]));
    assert!(text.contains("7 characters") && !text.contains("hunter2"), "{text}");
}

#[test]
fn values_are_shown_without_control_characters() {
    let text = message(&with(TORCHRUN, &[("RANK", "\x1b[31m8")]));
    assert!(text.contains("RANK=`\\u{1b}[31m8`"), "{text}");
}

#[test]
fn a_file_may_be_published_from_an_address_of_choice() {
    let base = [("FUSEWIRE_RANK", "1"), ("FUSEWIRE_WORLD_SIZE", "2"), ("FUSEWIRE_FILE", "/shared/meet")];
    let launch = read(&with(&base, &[("FUSEWIRE_LISTEN", "10.0.0.1")])).unwrap();
    assert!(
        matches!(&launch.meet, Meet::File { listen: Some(address), .. } if address.to_string() == "10.0.0.1")
    );
    assert!(message(&with(&base, &[("FUSEWIRE_LISTEN", "eth0")])).contains("an address of this host"));
}

#[test]
fn what_is_no_file_is_refused_at_once_on_every_rank() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let name = path.to_str().unwrap();
    for rank in ["0", "1"] {
        let own = [("FUSEWIRE_RANK", rank), ("FUSEWIRE_WORLD_SIZE", "2"), ("FUSEWIRE_FILE", name)];
        let started = std::time::Instant::now();
        let error = read(&own).unwrap().join(&Options::default()).unwrap_err();
        assert!(matches!(error, Error::Env(EnvError::Invalid { .. })), "{error:?}");
        assert!(error.to_string().contains("not a regular file"), "{error}");
        assert!(started.elapsed().as_secs() < 1);
    }
}
