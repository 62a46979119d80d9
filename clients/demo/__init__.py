"""The demo: DQN with prioritised n-step replay on CartPole-v1, in processes that share two tables.

Reading order: `tables` (what a step is), `actor` (who writes), `learner` (who samples), `q_network`, `adam`;
then `crew` (the processes), `interrupts` (Ctrl-C), `progress` (the display), `curve` (what was learned), and
`training`, which brings it together.
"""
