hvd_test(hvd_elastic_test
  elastic/agreement_test.cpp
  elastic/kept_states_test.cpp
  elastic/world_follower_test.cpp
  LIBRARIES hvd_worker
  LABELS quick)
