TOYS={}
