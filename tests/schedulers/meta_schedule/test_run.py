from tests.schedulers.run_script import *  # noqa: F403
